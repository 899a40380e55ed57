"""Write the golden files: `python tests/golden/make.py [NAME …]`, all of them without a name.

They record what the code does today; the tests beside this file compare the code with them. Write them again only for
a change of behavior that is meant, and read the difference. NAME is a file in data/ without its suffix, or runs: the
training runs in data/runs. Those are for resuming runs of earlier versions, so never write them again; add others.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import torch
from golden_records import RECORDS, RUNS, STORED_RUNS, record_finished_run, run_training, write_golden

STOPPED = "step-00000005"


def make_record(name: str) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        write_golden(name, RECORDS[name](Path(tmp)))
    print(f"wrote {name}.json")


def make_runs() -> None:
    """Train to the end, and store the checkpoint of step 5 with the metrics up to it."""
    finished = {}
    for name in STORED_RUNS:
        with tempfile.TemporaryDirectory() as tmp:
            run = run_training(name, Path(tmp))
            finished[name] = record_finished_run(run)
            shutil.rmtree(RUNS / name, ignore_errors=True)
            shutil.copytree(run / "checkpoints" / STOPPED, RUNS / name / "checkpoints" / STOPPED)
            lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
            (RUNS / name / "metrics.jsonl").write_text("".join(lines[: 5 + 1]))  # and one of validation
    write_golden("runs", finished)
    print("wrote runs.json and runs/")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or [*RECORDS, "runs"]:
        make_runs() if chosen == "runs" else make_record(chosen)
