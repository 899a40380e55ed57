"""Behavior that a refactoring must keep, against records in data/ (`make.py` writes them).

The records come from one machine: another CPU or another torch may move a pixel at an edge, or a point across a
threshold. They are there to compare versions of this code, so compare on the machine at hand before blaming a change.
"""

import json

import golden_access as access
import golden_records as records
import pytest

SHOWN = 20
"""Differences in a message, at most."""


def check_same(expected, found, rel=1e-5, abs_=1e-5):
    lines = records.find_differences(expected, found, rel, abs_)
    assert not lines, "\n".join([f"{len(lines)} differences from the golden file:", *lines[:SHOWN]])


def as_json(value):
    return json.loads(json.dumps(value))


def test_public_names(tmp_path):
    assert records.record_names(tmp_path) == records.read_golden("names")


def test_recipes(tmp_path):
    golden, found = records.read_golden("recipes"), as_json(records.record_recipes(tmp_path))
    assert golden.keys() <= found.keys()  # new recipes may come
    check_same(golden, {name: found[name] for name in golden}, rel=0.0, abs_=0.0)


@pytest.mark.parametrize("name", access.SHIPPED)
def test_shipped_weights(name):
    golden = records.read_golden(f"weights-{name}")
    check_same(golden, as_json(records.record_weights(name)), rel=1e-4, abs_=1e-7)


def test_photos_weights(tmp_path):
    found = as_json(records.record_photos_weights(tmp_path))
    assert records.read_golden("weights-g-ray-photos") == found


@pytest.mark.parametrize("name", [name for name in records.RECORDS if name.startswith("batches-")])
def test_batches(name, tmp_path):
    if name == "batches-objects":
        pytest.importorskip("embreex")
    check_same(records.read_golden(name), as_json(records.RECORDS[name](tmp_path)))


def test_synthesis(tmp_path):
    check_same(records.read_golden("synthesis"), as_json(records.record_synthesis(tmp_path)), abs_=0.01)


def test_exports(tmp_path):
    pytest.importorskip("pycolmap")
    pytest.importorskip("OpenEXR")
    golden, found = records.read_golden("exports"), as_json(records.record_exports(tmp_path))
    assert list(golden) == list(found)
    lengths = [record["report.html"].pop("length") for record in (golden, found)]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.02)
    # The JSON part has bounds in decimals, whose number of digits depends on rounding; buffer sizes are compared in it.
    sizes = [record["scene.glb"].pop("bytes") for record in (golden, found)]
    assert sizes[1] == pytest.approx(sizes[0], abs=16)
    check_same(golden, found, rel=1e-4, abs_=1e-4)


@pytest.mark.parametrize("name", records.STORED_RUNS)
def test_stored_runs_resume(name, tmp_path):
    """A run that was stopped after step 5 ends as the one that was left alone."""
    records.copy_run(name, tmp_path)
    before = records.read_metrics(tmp_path / "run")
    run = records.run_training(name, tmp_path)
    # Times included: a run that starts anew instead measures others.
    assert records.read_metrics(run)[: len(before)] == before
    check_same(
        records.read_golden("runs")[name], as_json(records.record_finished_run(run)), rel=1e-5, abs_=1e-6
    )
