"""Test objects under six protocols, and a whole table of them in miniature."""

import json
import pickle
import shutil
from dataclasses import replace

import pytest
import torch

from g_ray_lab.recipes.nvs_recipes import objects_tiny as tiny
from g_ray_lab.scoring.indexed_protocols import ObjectsProtocol
from g_ray_lab.scoring.nvs_scorer import REFERENCES, NVSScorer, make_predictor
from g_ray_lab.scoring.study import Study, run_study
from g_ray_lab.sources.object_index import PROTOCOLS, ObjectIndex, assign_split, draw_contexts, write_indices
from g_ray_lab.training.recipe import Schedule

NAMES = [f"object{i}" for i in range(60)]
TESTED = [name for name in NAMES if assign_split(name) == "test"][:3]
TRAINED = [name for name in NAMES if assign_split(name) == "train"][:4]
COUNTS = {"fov": 2, "novel": 6, "novel_fov": 6, "fov_dolly": 4, "novel_fov_dolly": 12, "mixed": 10}


@pytest.fixture(scope="module")
def protocol(tmp_path_factory, write_objects):
    folder = tmp_path_factory.mktemp("objects")
    root = write_objects(folder / "data", [*TRAINED, *TESTED], 24)
    write_indices(root, folder / "index", draw_contexts(root, 0))
    return ObjectsProtocol(root, folder / "index", 24, 24, at_once=2)


def test_all_test_objects_with_the_targets_of_each_setting(protocol):
    assert protocol.settings == tuple(PROTOCOLS)
    for setting in protocol.settings:
        batches = list(protocol.make_batches(setting))
        assert [len(batch) for batch in batches] == [2, 1]
        assert sum((batch.names for batch in batches), ()) == tuple(
            str(protocol.root / u) for u in sorted(TESTED)
        )
        assert all(batch.target_images.shape[1] == COUNTS[setting] for batch in batches)
        assert all(len(batch.targets) == COUNTS[setting] for batch in batches)


def test_contexts_are_the_same_in_all_settings(protocol):
    first, *others = (next(protocol.make_batches(setting)) for setting in protocol.settings)
    assert all(torch.equal(first.context_images, other.context_images) for other in others)
    assert all(
        torch.equal(first.contexts.poses.world_from_cam, other.contexts.poses.world_from_cam)
        for other in others
    )


def test_what_each_setting_changes(protocol):
    """FoV change: same place, other lens. Novel viewpoint: another place."""
    fov, novel = (next(protocol.make_batches(setting)) for setting in ("fov", "novel"))
    assert torch.equal(fov.contexts.poses.world_from_cam, fov.targets.poses.world_from_cam)
    for given, asked in zip(fov.contexts.cameras, fov.targets.cameras, strict=True):
        assert (given.parameter("fx") != asked.parameter("fx")).all()
    apart = novel.targets.poses.translation[:, :, None] - novel.contexts.poses.translation[:, None]
    assert apart.norm(dim=-1).min() > 0.01


def test_scores_pool_targets_before_the_logarithm(protocol):
    """A mixed score is not a mean of its parts' scores, but its squared error is."""
    scores = {
        setting: 10 ** (-protocol.score(REFERENCES["mean_colour"], setting, None).psnr / 10)
        for setting in ("novel", "fov_dolly", "mixed")
    }
    expected = (6 * scores["novel"] + 4 * scores["fov_dolly"]) / 10
    assert torch.allclose(scores["mixed"], expected, rtol=1e-4)


def test_references_and_a_perfect_prediction(protocol):
    assert (protocol.score(lambda batch: batch.target_images, "mixed", None).psnr > 100).all()
    for reference in REFERENCES.values():
        assert (protocol.score(reference, "novel_fov", None).psnr < 40).all()


def test_the_digest_belongs_to_the_images_and_not_to_their_place(protocol, tmp_path):
    copy = replace(protocol, root=tmp_path / "data", index=tmp_path / "index")
    shutil.copytree(protocol.root, copy.root)
    shutil.copytree(protocol.index, copy.index)
    assert copy.digest == pickle.loads(pickle.dumps(protocol)).digest == protocol.digest
    assert replace(protocol, width=12).digest != protocol.digest
    image = copy.root / TESTED[0] / "views" / next(iter(copy.indices["fov"].entries.values())).targets[0]
    image.write_bytes(image.read_bytes() + b"0")
    assert replace(copy).digest != protocol.digest


def test_a_table_in_miniature(protocol, tmp_path):
    def miniature(method):
        recipe = tiny(method, protocol.root)
        return replace(
            recipe,
            model=replace(recipe.model, dim=48, layers=1, heads=1, ffn=48),
            data=replace(recipe.data, width=24, height=24, batch=2),
            schedule=Schedule(lr=1e-3, steps=2),
        )

    protocol = replace(protocol, at_once=3)
    study = Study(
        "nvs-objects", "miniature", {m: miniature(m) for m in ("gta", "gta_gray")}, NVSScorer(protocol)
    )
    result = run_study(study, tmp_path, seeds=1)
    assert [(row["method"], row["setting"]) for row in result["rows"]] == [
        (method, setting) for method in ("gta", "gta_gray") for setting in PROTOCOLS
    ]
    assert result["settings"]["protocol_digest"] == protocol.digest
    json.dumps(result)
    again = run_study(study, tmp_path, seeds=1)
    assert again["rows"] == result["rows"]


def test_images_that_protocols_share_are_predicted_once(protocol):
    """Same scores as setting by setting, from 22 images of an object instead of 40."""
    recipe = tiny("gta")
    network = replace(recipe, model=replace(recipe.model, dim=48, layers=1, heads=1, ffn=48)).build_model()
    asked = []

    def predict(batch):
        asked.append(batch.target_images.shape[:2].numel())
        return make_predictor(network)(batch)

    together = protocol.score_settings(predict, None)
    assert sum(asked) == 22 * len(TESTED)
    for setting in ("fov", "mixed"):
        alone = protocol.score_batches(predict, setting, None)
        assert len(alone) == len(together[setting]) == 2
        for one, other in zip(alone, together[setting], strict=True):
            assert torch.allclose(one.psnr, other.psnr, rtol=0, atol=1e-5)
            assert torch.allclose(one.ssim, other.ssim, rtol=0, atol=1e-6)


def test_protocols_of_different_indices_are_refused(protocol):
    entries = dict(protocol.indices["fov"].entries)
    entries.pop(TESTED[0])
    mixed = replace(protocol)
    object.__setattr__(mixed, "indices", {**protocol.indices, "fov": ObjectIndex(entries, "")})
    with pytest.raises(ValueError, match="other objects or contexts"):
        mixed.score_settings(lambda batch: batch.target_images, None)
