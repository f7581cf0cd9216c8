"""The digits job on two processes: ours, PyTorch's DDP by torchrun, and Ray Train.

Each is a command, from nothing to the last step, in turn: seconds until the first step and until the end, memory of all
its processes together, accuracy, and lines that its user writes. Then one of two processes is killed in the middle:
seconds until a step that it had not done before, and steps done again. Both scripts save a checkpoint every 250 steps;
ours runs on two Dask workers with nannies then. ``python -m benchmarks.frameworks --python PYTHON [--rounds N]``;
PYTHON has torch and ray[train].
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.recovery import disturbed, endless
from tests.faults.jobs import first_unit, units_by_process
from tests.faults.machines import NANNY, machines

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
KILLED_AT = 1300
LIMIT_S = 300.0


class Took(NamedTuple):
    """Seconds until the first step and the end, MB of all processes together at most, and accuracy."""

    first_step: float
    end: float
    peak_mb: float
    accuracy: float


class Watched:
    """A command whose steps are read from a file that it writes, and whose processes are measured."""

    def __init__(self, command: Sequence[str], log: Path, step: str, stdout: Path) -> None:
        self._log, self._step = log, re.compile(step)
        self.began = time.perf_counter()
        env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "RAY_AUTH_MODE": "disabled"}
        with stdout.open("w") as out:
            self.process = psutil.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env=env)
        self.peak = 0.0
        self._measured = 0.0

    def text(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def steps(self) -> list[int]:
        return [int(found) for found in self._step.findall(self.text())]

    def wait(self, until: Callable[[], bool]) -> float:
        """Wait for something; return the seconds since the command began."""
        while not until():
            now = time.perf_counter()
            if now - self.began > LIMIT_S:
                raise TimeoutError(self.text()[-2000:])
            if now - self._measured > 0.5:
                self._measured = now
                self.peak = max(self.peak, self._memory())
            time.sleep(0.01)
        return time.perf_counter() - self.began

    def _memory(self) -> float:
        total = 0.0
        for each in [self.process, *self.process.children(recursive=True)]:
            try:
                total += each.memory_full_info().pss / 1e6
            except psutil.Error:
                pass
        return total

    def ended(self) -> bool:
        return self.process.poll() is not None


def command(name: str, python: str, folder: Path, show: int) -> Watched:
    """Start one of the three."""
    out = folder / "out"
    if name == "ours":
        run = [sys.executable, "-m", "singa_dask", "run", "configs/digits/mlp.yaml", "--cluster", "allreduce"]
        return Watched([*run, "--run-dir", f"{folder}/run"], out, r"Train @ step (\d+)", out)
    if name == "DDP":
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
        script = [f"{HERE}/frameworks_ddp.py", str(folder), str(show)]
        return Watched([python, *torchrun, *script], out, r"step (\d+)", out)
    return Watched([python, f"{HERE}/frameworks_ray.py", str(folder), str(show)], folder / "log-0", r"step (\d+)", out)


def run_whole(name: str, python: str, folder: Path) -> Took:
    """Run a command to its end."""
    watched = command(name, python, folder, 125)
    first = watched.wait(lambda: bool(watched.steps()))
    end = watched.wait(watched.ended)
    if watched.process.returncode:
        raise RuntimeError((folder / "out").read_text()[-2000:])
    return Took(first, end, watched.peak, float(re.findall(r"accuracy =? ?(0\.\d+)", watched.text())[-1]))


def run_killed(name: str, python: str, folder: Path) -> tuple[float, float]:
    """Kill the second process; return the seconds until a new step, and how many steps are done again."""
    if name == "ours":
        job = endless("allreduce")
        with machines(folder, *NANNY, n=2) as there:
            there.settle(2)
            run = disturbed(job, first_unit(job, len(units_by_process(job)) - 1), there, folder / "run")
        return run.recovery_s(), run.result.recomputed_steps
    watched = command(name, python, folder, 1)
    watched.wait(lambda: max(watched.steps(), default=0) >= KILLED_AT)
    text = watched.text() + ((folder / "log-1").read_text() if name == "Ray Train" else "")
    (pid,) = re.findall(r"process 1 (\d+)", text)
    os.kill(int(pid), signal.SIGKILL)
    killed = time.perf_counter()
    last = max(watched.steps())
    new = watched.wait(lambda: watched.steps()[-1] > last)
    steps = watched.steps()
    n_again = len(steps) - len(set(steps))
    watched.process.send_signal(signal.SIGINT)
    watched.wait(watched.ended)
    return new - (killed - watched.began), n_again


def n_lines(path: Path) -> int:
    """Return the lines that are neither empty nor comments."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in path.read_text().splitlines())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    written = {
        "ours": n_lines(ROOT / "configs/digits/mlp.yaml"),
        "DDP": n_lines(HERE / "frameworks_ddp.py"),
        "Ray Train": n_lines(HERE / "frameworks_ray.py"),
    }
    whole: dict[str, list[Took]] = {name: [] for name in written}
    lost: dict[str, list[tuple[float, float]]] = {name: [] for name in written}
    for _ in range(given.rounds):
        for name in written:
            with tempfile.TemporaryDirectory() as folder:
                whole[name].append(run_whole(name, given.python, Path(folder)))
            with tempfile.TemporaryDirectory() as folder:
                lost[name].append(run_killed(name, given.python, Path(folder)))
    print(f"medians of {given.rounds}; load {os.getloadavg()[0]:.1f}")
    heads = ("first step s", "whole s", "MB", "accuracy", "lines", "new step s", "again")
    print(" " * 12 + "".join(f"{head:>14}" for head in heads))
    for name, took in whole.items():
        first, end, peak, accuracy = (statistics.median(values) for values in zip(*took, strict=True))
        seconds, again = (statistics.median(values) for values in zip(*lost[name], strict=True))
        print(
            f"{name:12}{first:14.1f}{end:14.1f}{peak:14.0f}{accuracy:14.4f}{written[name]:14}{seconds:14.1f}{again:14.0f}"
        )


if __name__ == "__main__":
    main()
