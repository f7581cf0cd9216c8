"""Computing in a process that was forked from one that has computed with several threads."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.ops.onednn.test_ops import needs_library

TIMEOUT_S = 30
START = f"""
import os, signal, sys, warnings
import numpy as np
import threadpoolctl
import singa_dask as sd
from singa_dask.ops import OneDnnOps
from tests.ops.onednn.test_ops import convolve

def begin():
    signal.alarm({TIMEOUT_S})  # a child that hangs is ended, also in a kernel
    warnings.simplefilter("always")

def report(*values):
    print(*values, flush=True)
"""
KERNELS = """
ops = OneDnnOps()
threadpoolctl.threadpool_limits(4, user_api="openmp")
first = convolve(ops)
if os.fork() == 0:
    begin()
    ops = OneDnnOps()
    report(np.allclose(convolve(ops), first, rtol=1e-3, atol=1e-3))
    convolve(OneDnnOps())
    with threadpoolctl.threadpool_limits(3, user_api="openmp"):
        convolve(ops)
        report(max(each["num_threads"] for each in threadpoolctl.threadpool_info() if "gomp" in each["filepath"]))
    os._exit(0)
report(os.wait()[1])
"""
POOL = """
import multiprocessing
from tests.jobs.conftest import KEYS, digits_net
url = sys.argv[1]
sd.train(sd.Job(digits_net(), train_steps=2, threads=1, **KEYS), run_dir=url, progress=False)
model = sd.load_model(url, threads=4)
x = np.random.default_rng(3).integers(0, 255, (300, 28, 28), np.uint8)
first = model.predict_proba(x)
with multiprocessing.get_context("fork").Pool(1, begin) as pool:
    [found] = pool.map_async(model.predict_proba, [x]).get(TIMEOUT)
report(np.allclose(found, first, rtol=1e-5, atol=1e-6))
if os.fork() == 0:
    begin()
    try:
        model.predict(x)
    except Exception as error:
        report(error)
    try:
        sd.train(sd.Job(digits_net(), train_steps=2, threads=4, **KEYS), progress=False)
    except Exception as error:
        report(error)
    os._exit(0)
report(os.wait()[1])
""".replace("TIMEOUT", str(TIMEOUT_S))


def run(code: str, *arguments: Any) -> tuple[list[str], str]:
    """Return the lines that a program prints, and its stderr."""
    command = [sys.executable, "-W", "ignore:.*fork:DeprecationWarning", "-c", START + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * TIMEOUT_S, check=False)
    return done.stdout.splitlines(), done.stderr


@needs_library
def test_kernels_compute_with_one_thread_and_say_so_once() -> None:
    lines, said = run(KERNELS)
    assert (lines, said.count("Warning")) == (["True", "1", "0"], 1), said
    assert "this process was forked from one that has computed. It computes with one thread instead of 4." in said


@needs_library
@pytest.mark.long
def test_a_model_is_loaded_in_a_pool_and_what_cannot_work_is_refused(tmp_path: Any) -> None:
    lines, said = run(POOL, tmp_path / "run")
    assert len(lines) == 4, said
    assert (lines[0], lines[3]) == ("True", "0")
    assert "Load or build the net in the child" in lines[1]
    assert lines[2] == "Dask was used before this process was forked. Start processes by spawn or forkserver instead."
