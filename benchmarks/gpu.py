"""Checks and times everything on a real GPU, in pieces of nine minutes; ours beside PyTorch on the same card.

Each task is a process of its own with a limit of time: what fails is told with its traceback, and the others go on.
All is printed as it comes, and is in a file of JSON in the end. ``python -m benchmarks.gpu [--piece N]
[--part PART ...] [--what NET ...] [--out FILE] [--small]``; ``--piece`` counts from 1; ``--small`` is for a look at it
where the GPU is a simulated one.

card: the card, and what it can do; tests: what pytest has for GPUs; agree: losses of 50 steps with those on the CPU;
steps: a training step of each net; loader: how long a job waits for records; runtime: what worker and server cost;
profile: time by layer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu_report import Report

ROOT = Path(__file__).parents[1]
STEPS = ("cifar-100", "cifar-1024", "mlp-64", "mlp-1024", "alexnet-256", "gru", "resnet20", "transformer")
AGREED = ("mlp", "lenet", "cifar", "cifar-bn", "gru", "rbm", "resnet20", "transformer")
PROFILED = ("cifar-1024", "alexnet-256", "gru", "resnet20", "transformer")


class Task(NamedTuple):
    """What one process does, and how many seconds it may take."""

    part: str
    what: str = ""
    limit_s: float = 60.0


TASKS = (
    Task("card", limit_s=60),
    *(Task("agree", what, 120) for what in AGREED),
    *(Task("steps", what, 180 if what == "alexnet-256" else 80) for what in STEPS),
    *(Task("profile", what, 40) for what in PROFILED),
    Task("runtime", limit_s=60),
    Task("loader", limit_s=60),
    # the first one compiles most kernels
    *(Task("tests", what, 400) for what in ("gpu", "ops", "contracts")),
)
PARTS = tuple(dict.fromkeys(task.part for task in TASKS))
PIECE_S = 540.0


def pieces(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return tasks in order, cut into pieces of `PIECE_S` at most."""
    made: list[list[Task]] = [[]]
    for task in tasks:
        if sum(each.limit_s for each in made[-1]) + task.limit_s > PIECE_S:
            made.append([])
        made[-1].append(task)
    return made


def run(task: Task, limit_s: float, small: bool, lines: Path) -> None:
    """Run a task in a process of its own; what it finds is added to a file, a line each."""
    command = [
        sys.executable,
        "-u",
        "-m",
        "benchmarks.gpu",
        "--child",
        task.part,
        task.what,
        "--lines",
        str(lines),
    ]
    # a group of its own: it may have started others
    child = subprocess.Popen([*command, *["--small"][: int(small)]], cwd=ROOT, start_new_session=True)
    try:
        code: int | str = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        code = f"not done within {limit_s:.0f} s"
    if code:
        Report(lines, task.part, task.what).tell(failed=code)


def found(lines: Path) -> Iterator[dict[str, Any]]:
    """Yield what the tasks so far have found; a line that was cut off is left out."""
    for line in lines.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            print(f"left out: {line}", flush=True)


def work(part: str, what: str, report: Report, small: bool) -> None:
    """Do a task in this process."""
    # each of these imports libraries that take seconds
    if part in ("steps", "profile"):
        from benchmarks import gpu_steps

        (gpu_steps.steps if part == "steps" else gpu_steps.profile)(what, report, small)
        return
    from benchmarks import gpu_parts

    getattr(gpu_parts, part)(what, report, small)


def main() -> None:
    """Run the tasks that were asked for, or one of them as a child."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--what", nargs="+", help="only tasks of these nets, e.g. gru")
    parser.add_argument("--out", type=Path, help="file of JSON with all that was found")
    parser.add_argument("--piece", type=int, help="only this piece of the tasks, which takes nine minutes at most")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--lines", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        report = Report(given.lines, *given.child)
        sys.exit(not report.attempt("", lambda: work(*given.child, report, given.small)))
    tasks = [
        task
        for task in TASKS
        if task.part in given.part
        and (not given.what or task.what in given.what)
        and not (given.small and task.part == "tests")
    ]
    cut = pieces(tasks)
    if given.piece and not 1 <= given.piece <= len(cut):
        parser.error(f"--piece {given.piece}: there are {len(cut)} pieces.")
    chosen = cut[given.piece - 1] if given.piece else tasks
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "lines"
        lines.touch()
        for task in chosen:
            started = time.monotonic()
            print(f"== {task.part} {task.what}", flush=True)
            run(task, task.limit_s, given.small, lines)
            print(f"   {time.monotonic() - started:.1f} s", flush=True)
            if given.out:
                given.out.write_text(json.dumps(list(found(lines)), indent=1) + "\n")
        failed = [line for line in found(lines) if "failed" in line]
    for line in failed:
        print(f"FAILED {line['part']} {line['what']} {line.get('name', '')}: {str(line['failed'])[-500:]}", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
