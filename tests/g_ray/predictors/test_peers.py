"""The contract of every line of PEERS, on fakes that know the truth and speak the peers' own conventions."""

from dataclasses import replace

import fake_peers
import pytest
import torch
from fake_peers import ORACLE, ray_depth
from safetensors.torch import save_file

from g_ray.cameras import Equirectangular, OpenCVFisheye, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.models.vggt import VGGT, VGGTConfig, VGGTPrediction
from g_ray.predictors import MODELS, ModelSettings, make_predictor
from g_ray.predictors.model_settings import ModelName
from g_ray.predictors.peers import PEERS, make_peer
from g_ray.predictors.peers import peer_photographs as planning
from g_ray.predictors.predictor import Predictor, SceneInput, check_priors

SIZE = 140
MANY = [name for name, card in PEERS.items() if card.many]
ONE = [name for name, card in PEERS.items() if not card.many]


def lens(kind, width=96, height=72):
    if kind == "pinhole":
        return Pinhole.make(width, height, fx=80.0, fy=80.0, cx=width / 2, cy=height / 2)
    if kind == "fisheye":
        return OpenCVFisheye.make(width, width, fx=31.0, fy=31.0, cx=width / 2, cy=width / 2, k1=0.01)
    return Equirectangular.make(
        2 * height, height, fx=height / torch.pi, fy=height / torch.pi, cx=float(height), cy=height / 2
    )


POSES = [
    Pose.look_at((0.0, 0.0, 0.0), (0.0, 0.0, 1.0)).to(torch.float64),
    Pose.look_at((1.0, 0.1, 0.2), (0.8, 0.0, 3.0)).to(torch.float64),  # moved to the right: +x
    Pose.look_at((-0.8, -0.3, 0.4), (0.4, 0.5, 3.0)).to(torch.float64),
]


def make_views(kinds=("pinhole", "pinhole", "pinhole"), *, posed=False):
    views = []
    for number, kind in enumerate(kinds):
        camera = lens(kind)
        photo = torch.rand(3, camera.height, camera.width, generator=torch.Generator().manual_seed(number))
        pose = POSES[number] if posed else None
        views.append(View(f"v{number}.png", camera, pose, "test", photo))
    return views


@pytest.fixture
def peers(monkeypatch, tmp_path):
    """Fakes are installed; whatever is shown to them is known to the oracle, with true cameras and poses."""
    for name in ("images", "used", "calls"):
        getattr(ORACLE, name).clear()
    ORACLE.scale = fake_peers.SCALE
    for plan in (planning.WholePlan, planning.CropsPlan):
        monkeypatch.setattr(plan, "show", _tell_oracle(plan.show))
    _fake_native_vggt(monkeypatch)
    weights = tmp_path / "fake.safetensors"
    save_file({"weight": torch.zeros(1)}, weights)
    torch.save({"weight": torch.zeros(1)}, tmp_path / "wid3r.bin")
    with fake_peers.installed(monkeypatch):

        def make(name, **settings):
            file = tmp_path / "wid3r.bin" if name == "wid3r" else weights
            ORACLE.scale = 1.0 if PEERS[name].metric else fake_peers.SCALE
            return make_peer(
                name, ModelSettings(**{"weights": str(file), "size": SIZE, "device": "cpu", **settings})
            )

        yield make


def _tell_oracle(show):
    def spy(self, places, filter):
        true_pose = POSES[int(self.view.name[1])]
        with_lens = {"given": True} if isinstance(self, planning.WholePlan) else {}
        true = replace(self, view=replace(self.view, pose=true_pose), **with_lens)
        ORACLE.images += show(true, places, filter).images
        return show(self, places, filter)

    return spy


def _fake_native_vggt(monkeypatch):
    """Our own VGGT has no weights here either: it answers as the others do."""
    from g_ray.models.vggt import EncodedCameras
    from g_ray.predictors.peers import vggt_family as vggt

    class Native(VGGT):
        def __init__(self):
            torch.nn.Module.__init__(self)
            self.config = VGGTConfig("patch", 32, 4, 2, 14, (0, 1, 2, 3), 8, (4, 4, 8, 8), camera_blocks=1)

        def forward(self, images):
            ORACLE.check_images(images, 14)
            z = fake_peers.batch(ORACLE.z_depths())
            return VGGTPrediction(EncodedCameras(ORACLE.codes()[None]), z, torch.full_like(z, 2.0))

    monkeypatch.setattr(vggt, "load_vggt", lambda weights: Native())


def compare_with_truth(views, name, *, tolerance=0.02):
    """Depth in the interior and at the corners, and poses relative to the first; returns the scale."""
    scale = 1.0 if PEERS[name].metric else fake_peers.SCALE
    for number, view in enumerate(views):
        true = ray_depth(view.camera, POSES[number])
        error = (view.ray_depth.double() / scale / true - 1).abs()
        assert bool(view.valid.float().mean() > 0.7), view.valid.float().mean()
        assert float(error[view.valid].quantile(0.99)) < tolerance, (number, error[view.valid].max())
        corners = view.valid[[0, 0, -1, -1], [0, -1, 0, -1]]
        assert bool((error[[0, 0, -1, -1], [0, -1, 0, -1]][corners] < tolerance).all())
        if PEERS[name].many:
            relative = POSES[0].inverse() @ POSES[number]
            found = views[0].pose.to(torch.float64).inverse() @ view.pose.to(torch.float64)
            assert torch.allclose(found.rotation, relative.rotation, atol=2e-3)
            assert torch.allclose(found.translation / scale, relative.translation, atol=5e-3)


def test_the_names_of_models_are_declared_once():
    assert set(ModelName.__args__) == set(MODELS)
    assert set(PEERS) <= set(MODELS)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_a_predictor(name, peers):
    predictor = peers(name)
    assert isinstance(predictor, Predictor) and name == predictor.NAME
    cost = predictor.estimate_cost(SceneInput(make_views()))
    assert cost.memory > 0 and PEERS[name].title in cost.text
    assert predictor.describe_settings()["lenses"] == "given"


@pytest.mark.parametrize("name", MANY)
def test_pinholes_come_back_in_our_conventions(name, peers):
    """z against distance, direction of poses, half pixels, and the first view as the world."""
    prediction = peers(name).predict(SceneInput(make_views()))
    views = list(prediction.views)
    assert torch.allclose(views[0].pose.world_from_cam, torch.eye(4).to(views[0].pose.dtype), atol=1e-5)
    assert float(views[1].pose.translation[0]) > 0  # the second camera stands to the right
    compare_with_truth(views, name)
    assert ("calibration" in ORACLE.used) == (PEERS[name].calibration == "yes")
    assert ("takes" in " ".join(prediction.notes)) == (
        PEERS[name].calibration != "yes" or PEERS[name].takes is not None
    )
    assert (prediction.scale is not None) == PEERS[name].metric
    for view in views:
        original = view.original_camera
        assert (original.width, original.height) == (96, 72)
        assert bool((view.confidence[view.valid] > 0).all())


@pytest.mark.parametrize("kind", ["fisheye", "panorama"])
@pytest.mark.parametrize("name", MANY)
def test_other_lenses_come_back_on_their_own_rays(name, kind, peers):
    """Peers that know pinholes alone see virtual ones; others see the photograph with its rays."""
    views = list(peers(name).predict(SceneInput(make_views(("pinhole", kind)))).views)
    crops = len(ORACLE.images) - 1
    assert crops == 1 if PEERS[name].lenses == "any" else crops > 3
    compare_with_truth(views, name, tolerance=0.03)


@pytest.mark.parametrize("name", [name for name in MANY if name != "any3r"])
def test_without_calibration_the_lenses_are_the_peers_own(name, peers):
    views = list(peers(name, lenses="predicted").predict(SceneInput(make_views())).views)
    assert "calibration" not in ORACLE.used or name == "wid3r"
    compare_with_truth(views, name)
    for view in views:
        true = lens("pinhole").resize(view.camera.width, view.camera.height).unproject_grid()[0]
        off = (view.camera.unproject_grid()[0].double() - true.double()).norm(dim=-1)
        assert float(off.max()) < 0.1 / 80  # a tenth of a pixel of the photograph
        assert (view.original_camera.width, view.original_camera.height) == (96, 72)


@pytest.mark.parametrize("name", PEERS)
def test_known_poses_reach_the_peer_or_are_reported(name, peers):
    notes: dict[str, None] = {}
    peers(name).predict_few(make_views(posed=True), notes)
    card = PEERS[name]
    assert ("poses" in ORACLE.used) == (card.poses != "no")
    if card.calibration != "no":
        assert "calibration" in ORACLE.used
    assert ("poses" in " ".join(notes)) == (card.poses == "no")


@pytest.mark.parametrize("name", [name for name in MANY if PEERS[name].poses != "no"])
def test_poses_that_a_peer_cannot_use_are_reported(name, peers):
    """Of three views the last alone has a pose."""
    views = make_views()
    views[2] = replace(views[2], pose=POSES[2])
    notes: dict[str, None] = {}
    peers(name).predict_few(views, notes)
    assert "poses" not in ORACLE.used
    assert any("moved to the known poses instead" in note for note in notes)


@pytest.mark.parametrize("name", MANY)
def test_a_view_of_another_shape(name, peers):
    """A portrait among landscapes: cropped, padded or stretched, its pixels keep their rays."""
    views = make_views()
    tall = Pinhole.make(72, 96, fx=80.0, fy=80.0, cx=36.0, cy=48.0)
    views[1] = View("v1.png", tall, None, "test", torch.rand(3, 96, 72))
    prediction = peers(name).predict(SceneInput(views))
    for number, view in enumerate(prediction.views):
        true = ray_depth(view.camera, POSES[number])
        scale = 1.0 if PEERS[name].metric else fake_peers.SCALE
        error = (view.ray_depth.double() / scale / true - 1).abs()[view.valid]
        assert float(error.max()) < 0.02
        assert any("stretched" in note for note in prediction.notes) == name.startswith(("pi3", "wid3r"))
        lost = float((~view.valid).float().mean())
        assert lost < 0.01 or any("cropped" in note for note in prediction.notes)
    assert (prediction.views[1].original_camera.width, prediction.views[1].original_camera.height) == (72, 96)


@pytest.mark.parametrize("name", ONE)
def test_single_photographs(name, peers):
    """One view needs no poses; the peer's mask is not applied."""
    (view,) = peers(name).predict(SceneInput(make_views()[:1])).views
    compare_with_truth([view], name)
    assert "calibration" in ORACLE.used
    assert all(call.get("apply_mask") is not True for call in ORACLE.calls)


@pytest.mark.parametrize("name", ONE)
def test_single_fisheye(name, peers):
    views = make_views(("fisheye",))
    (view,) = peers(name).predict(SceneInput(views)).views
    compare_with_truth([view], name, tolerance=0.03)


def test_mapanything_masks_nothing(peers):
    peers("mapanything").predict(SceneInput(make_views()))
    assert ORACLE.calls == [{"use_amp": False, "apply_mask": False, "mask_edges": False}]


@pytest.mark.parametrize("name", MANY)
def test_masked_pixels_have_no_depth(name, peers):
    views = make_views(("pinhole", "fisheye"))
    masks = [torch.ones(view.camera.height, view.camera.width, dtype=torch.bool) for view in views]
    for mask in masks:
        mask[:, : mask.shape[1] // 3] = False
    views = [replace(view, mask=mask) for view, mask in zip(views, masks, strict=True)]
    for view in peers(name).predict(SceneInput(views)).views:
        edge = view.valid.shape[1] // 3
        assert not bool(view.valid[:, : edge - 1].any()) and bool(view.valid[:, edge + 2 :].any())


def test_rigs_are_refused(peers):
    predictor = peers("vggt")
    scene = SceneInput(make_views(), rig=object())
    with pytest.raises(ValueError, match="cannot use the given rig"):
        check_priors(predictor, scene)


@pytest.mark.parametrize("name", [name for name, card in PEERS.items() if card.package is not None])
def test_a_peer_that_is_not_installed(name, monkeypatch):
    for module in fake_peers.MODULES:
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(OSError) as caught:
        make_peer(name, ModelSettings(device="cpu"))
    text = str(caught.value)
    assert PEERS[name].install in text and "\n" not in text


def break_depth(result):
    return replace(result, depth=torch.full_like(result.depth, torch.nan))


def break_pose(result):
    return replace(result, pose=Pose(torch.full((4, 4), torch.nan)))


def break_shape(result):
    return replace(result, depth=result.depth[:-1], confidence=result.confidence[:-1])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (break_depth, "no positive depth"),
        (break_pose, "no finite pose"),
        (break_shape, "gave depth of"),
    ],
)
def test_garbage_is_refused_in_one_line(spoil, words, peers):
    predictor = peers("pi3")
    good = predictor.adapter.predict
    predictor.adapter.predict = lambda images: [spoil(result) for result in good(images)]
    with pytest.raises(ValueError, match=words) as caught:
        predictor.predict(SceneInput(make_views()))
    assert "\n" not in str(caught.value)


def test_wrong_weights_are_refused_in_one_line(peers, tmp_path):
    save_file({"other": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="not the weights of OmniVGGT") as caught:
        peers("omnivggt", weights=str(tmp_path / "other.safetensors"))
    assert "\n" not in str(caught.value)


def test_chunks_are_joined(peers, tmp_path):
    """Four photographs at a time of five; the fake sees each chunk anew."""
    views = make_views(("pinhole",) * 3)
    more = [replace(views[number % 3], name=f"{'vwx'[number // 3]}{number % 3}.png") for number in range(5)]
    predictor = peers("vggt", at_once=4)
    run = predictor.adapter.predict

    def forget(images):
        results = run(images)
        ORACLE.images.clear()
        return results

    predictor.adapter.predict = forget
    prediction = predictor.predict(SceneInput(more), tmp_path)
    assert [view.name for view in prediction.views] == [view.name for view in more]
    for view in prediction.views:
        pose = POSES[int(view.name[1])]
        error = view.ray_depth.double() / fake_peers.SCALE / ray_depth(view.camera, pose) - 1
        assert float(error.abs()[view.valid].max()) < 0.02
    assert sorted(path.name for path in tmp_path.glob("chunk*")) == ["chunk-0000.npz", "chunk-0001.npz"]


def test_memory_limits_the_views_of_a_chunk(peers):
    views = make_views()
    more = [replace(views[0], name=f"v{number}.png") for number in range(9)]
    roomy, tight = peers("pi3", max_memory=64.0), peers("pi3", max_memory=0.9)
    assert roomy.count_at_once(roomy._plan(more)) == 9
    count = tight.count_at_once(tight._plan(more))
    assert 4 <= count < 9
    assert tight.estimate_cost(SceneInput(more)).memory <= 0.9 * 2**30
    with pytest.raises(ValueError, match="raise --max-memory"):
        peers("pi3", max_memory=0.1).estimate_cost(SceneInput(more))


def test_settings_that_other_models_would_ignore_are_refused():
    with pytest.raises(ValueError, match="finds no lenses"):
        make_predictor("stereo", ModelSettings(lenses="predicted"))
    with pytest.raises(ValueError, match="has no weights"):
        make_predictor("stereo", ModelSettings(weights="some.safetensors"))
