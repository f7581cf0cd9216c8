"""What Dask workers load for these tests: a layer that harms its process once, and jobs that wait for their fault."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from singa_dask.cancellation import pause
from singa_dask.conf import Phase
from singa_dask.layers import LAYERS, Layer
from singa_dask.runtime.units.worker import Worker

__all__ = ["HELD", "Fatal", "dask_setup"]

HELD = "held"
"""A file in a run directory, with a step: while it exists workers are slow from then on, and none begins the last one.

They are not stopped, since what they do between steps may be what the fault waits for: reports for a checkpoint.
"""
SLOW = 100
"""How many hundredths of a second a slow step waits."""


def dask_setup(worker: object) -> None:
    """Let jobs wait for their fault: this module is for ``--preload`` of a Dask worker."""
    init = Worker.__init__

    def init_and_wait(self: Worker, *arguments: Any, **given: Any) -> None:
        init(self, *arguments, **given)
        job, saving = arguments[1], arguments[6]
        for name in ("train", "test"):
            real = getattr(self.trainer, name)
            held = Path(saving.url).with_name(HELD)
            setattr(self.trainer, name, partial(_call_unless_held, real, held, job.train_steps - 1))

    setattr(Worker, "__init__", init_and_wait)  # noqa: B010


def _call_unless_held(real: Callable[..., Any], held: Path, last_step: int, *arguments: Any) -> Any:
    """Call a method of a trainer, whose last argument is a step, when that may begin."""
    step, n_waits = arguments[-1], 0
    with suppress(FileNotFoundError):
        while step >= int(held.read_text()) and (n_waits < SLOW or step >= last_step):
            pause(0.01)
            n_waits += 1
    return real(*arguments)


@LAYERS.register()
class Fatal(Layer):
    """Passes values on. ``user_conf``: at ``step``, ``group``, ``worker`` it does ``how`` if it can delete ``once``.

    Without ``once`` it does so each time.
    """

    def setup(self) -> None:
        self.add_output(self.sources[0].shape)

    def compute_feature(self, phase: Phase) -> None:
        conf, context = self.conf.user_conf, self.context
        wanted = (conf["step"], conf.get("group", 0), conf.get("worker", 0))
        if (context.step, context.group, context.worker) == wanted and ("once" not in conf or took(conf["once"])):
            harm(conf["how"])
        np.copyto(self.features[0].data, self.sources[0].data)

    def compute_gradient(self, phase: Phase) -> None:
        np.copyto(self.sources[0].grad, self.features[0].grad)


def took(path: str) -> bool:
    """Return whether a file was there, which it is no more."""
    try:
        Path(path).unlink()
    except FileNotFoundError:
        return False
    return True


def die_at(event: str, path: str, once: str) -> None:
    """Let this process be killed at an audit event about a path, if it can delete the file ``once``."""

    def watch(name: str, arguments: tuple[object, ...]) -> None:
        # the new name of a file that is renamed
        if name == event and path in str(arguments[name == "os.rename"]) and took(once):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def hold_gil_soon(seconds: int) -> None:
    """Hold this process's GIL for some seconds, a moment after the caller has its answer."""
    threading.Timer(0.5, ctypes.PyDLL(None).sleep, [seconds]).start()


def harm(how: str) -> None:
    """Do something that no layer should do."""
    if how == "_exit":
        os._exit(3)
    if how == "exit":
        sys.exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "hold-gil":
        ctypes.PyDLL(None).sleep(20)
    if how == "eat-memory":
        held = []
        while True:
            held.append(np.ones(1 << 22))
