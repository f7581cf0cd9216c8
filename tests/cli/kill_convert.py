"""A program that runs ``singa-dask convert`` again and again in processes of its own, and has them killed.

``python kill_convert.py SOURCE FOLDER SUFFIX N_POINTS SEED`` prints how each process ended, and what differs. A point
is the so-many-th time that a process touches a file; each process kills itself there as ``kill -9`` would.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from singa_dask.cli import main
from singa_dask.data.convert import plan as convert_plan

EVENTS = ("open", "os.listdir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir", "shutil.rmtree")
OPTIONS = "--shuffle 3 --split train=0.7,test=0.2 --shards 4 --verify".split()


def convert(source: str, folder: Path, suffix: str, at: int = -1) -> tuple[int, int]:
    """Fork a process that converts; return how it ended, and how often it touched a file."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        touched = len(os.fdopen(read, "rb").read())
        return os.waitpid(child, 0)[1], touched
    count = 0

    def touch(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if event in EVENTS and args and str(args[0]).startswith(str(folder)):
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            os.write(write, b".")

    sys.addaudithook(touch)
    target, mean = folder / f"{{split}}{suffix}", folder / "mean.bin"
    try:
        main(["convert", "npz", source, str(target), "--mean", str(mean), *OPTIONS])
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 9)
    os._exit(9)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


if __name__ == "__main__":
    source, base, suffix = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    # once, before the forks
    importlib.import_module("singa_dask.cli.convert")
    # several runs and buckets of a few records
    convert_plan.DIRECT_BYTES, convert_plan.RUN_BYTES = 1000, 1500
    (base / "whole").mkdir()
    ended, n_touched = convert(source, base / "whole", suffix)
    expected = contents(base / "whole")
    report: dict[str, Any] = {"whole": ended, "files": sorted(expected), "touched": n_touched, "points": []}
    for i, point in enumerate(sorted(random.Random(int(sys.argv[5])).sample(range(n_touched), int(sys.argv[4])))):
        folder = base / f"killed-{i}"
        folder.mkdir()
        killed, again = convert(source, folder, suffix, point)[0], convert(source, folder, suffix)[0]
        found = contents(folder)
        wrong = [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)]
        report["points"].append({"killed": killed, "again": again, "wrong": wrong})
    print(json.dumps(report))
