"""Write the golden files: `python tests/golden/make.py [NAME …]`, all of them without a name.

They record what the code does today; the tests next to this file compare the code with them. Write them again only for
a change of behavior that is meant, and read the difference. NAME is a file in data/ without its suffix, tables/NAME for
one of data/tables, tables for all of those, or runs: the training runs in data/runs. With --check nothing is written:
tables are made, also the expensive ones, and compared with their files.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from golden_records import RECORDS, RUNS, STORED_RUNS, record_finished_run, run_training, write_golden
from golden_tables import (
    GOLDEN_TABLES,
    TABLES,
    find_missing,
    find_table_differences,
    read_golden_table,
    record_table,
)

STOPPED = "step-00000005"
PREFIX = "tables/"


def make_record(name: str) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        write_golden(name, RECORDS[name](Path(tmp)))
    print(f"wrote {name}.json")


def make_table(name: str) -> None:
    TABLES.mkdir(exist_ok=True)
    if missing := find_missing(GOLDEN_TABLES[name]):
        print(f"left out {PREFIX}{name}.json: no {missing} here")
        return
    seconds = read_cpu_seconds()
    with tempfile.TemporaryDirectory() as tmp:
        write_golden(f"{PREFIX}{name}", record_table(name, Path(tmp)))
    print(f"wrote {PREFIX}{name}.json: {read_cpu_seconds() - seconds:.1f} CPU seconds", flush=True)


def check_table(name: str) -> bool:
    """Print how a table differs from its golden file; whether it is the same, or cannot be made here."""
    if missing := find_missing(GOLDEN_TABLES[name]):
        print(f"not checked {name}: no {missing} here")
        return True
    seconds = read_cpu_seconds()
    with tempfile.TemporaryDirectory() as tmp:
        lines = find_table_differences(read_golden_table(name), record_table(name, Path(tmp)))
    verdict = f"{len(lines)} differences" if lines else "same"
    print(
        f"{name}: {verdict}, {read_cpu_seconds() - seconds:.1f} CPU seconds",
        *lines[:20],
        sep="\n  ",
        flush=True,
    )
    return not lines


def read_cpu_seconds() -> float:
    """The CPU time of this process and of its finished children."""
    return sum(os.times()[:4])


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


def list_tables(words: list[str]) -> list[str]:
    """The tables that the words name; all of them without a word."""
    return [word.removeprefix(PREFIX) for word in words if word != "tables"] or list(GOLDEN_TABLES)


def make(name: str) -> None:
    """Write what one word of the command line names."""
    if name == "runs":
        make_runs()
    elif name == "tables":
        for table in GOLDEN_TABLES:
            make_table(table)
    elif name.startswith(PREFIX):
        make_table(name.removeprefix(PREFIX))
    else:
        make_record(name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    words = sys.argv[1:]
    if "--check" in words:
        words.remove("--check")
        same = [check_table(name) for name in list_tables(words)]
        sys.exit(0 if all(same) else 1)
    for word in words or [*RECORDS, "tables", "runs"]:
        make(word)
