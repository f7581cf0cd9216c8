"""Neighbours: processes that keep the other cores busy while costs are measured."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, loads
from singa_dask.conf.files.yaml_text import dump
from singa_dask.planner.loop import Loop
from singa_dask.runtime.planning.thread_limits import limit_process, limit_thread


def keep_busy() -> None:
    """Compute training steps of the job file in argv, as the main function of a process.

    Bytes on stdin alternately start and pause the computation. The process ends at the end of stdin.
    """
    loop = Loop(loads(Path(sys.argv[1]).read_text(), sys.argv[1], registries=REGISTRIES, with_lines=False).job)
    with limit_process(1), limit_thread(1):
        loop.step()
        while os.write(1, b".") and os.read(0, 1):
            while not select.select([0], [], [], 0)[0]:
                loop.step()
            os.read(0, 1)


class Neighbours:
    """Processes that keep the other cores busy with steps of a job, while this process measures something."""

    def __init__(self, job: JobConf, n: int) -> None:
        self._job: JobConf | None = job
        self._n = n
        self._pipes: list[tuple[Any, Any]] = []
        self._stack = contextlib.ExitStack()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Keep the processes busy during the context. The first call starts the processes."""
        if self._job:
            self._start(self._job)
        self._write()
        yield
        self._write()
        self._pipes = [(stdin, stdout) for stdin, stdout in self._pipes if stdout.read(1)]

    def _write(self) -> None:
        for stdin, _ in self._pipes:
            with contextlib.suppress(BrokenPipeError):  # the process has ended
                stdin.write(b".")

    def _start(self, job: JobConf) -> None:
        self._job = None
        file = Path(self._stack.enter_context(tempfile.TemporaryDirectory()), "job.yaml")
        file.write_text(dump(job.model_dump(mode="json", exclude_unset=True)))
        command = [sys.executable, "-c", "from singa_dask.planner.neighbours import keep_busy; keep_busy()", str(file)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        for _ in range(self._n):
            process = self._stack.enter_context(subprocess.Popen(command, bufsize=0, **pipes))
            self._pipes.append((process.stdin, process.stdout))
        self._pipes = [(stdin, stdout) for stdin, stdout in self._pipes if stdout.read(1)]

    def close(self) -> None:
        """End the processes by closing their stdin."""
        self._stack.close()
