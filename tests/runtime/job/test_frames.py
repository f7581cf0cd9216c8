"""Threads that begin while the stacks of all threads are looked at."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys, threading
from singa_dask.runtime.job.frames import guard_frames

guard_frames()
guard_frames()
gc.set_threshold(1)
sys.setswitchinterval(1e-6)
gc.callbacks.append(lambda phase, info: [number for number in range(3000)])
is_over = threading.Event()

def begin():
    while not is_over.is_set():
        thread = threading.Thread(target=len, args=((),))
        thread.start()
        thread.join()

def nest(depth):
    if depth:
        return nest(depth - 1)
    is_over.wait()

threads = [threading.Thread(target=begin) for _ in range(4)]
threads += [threading.Thread(target=nest, args=(50,)) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(20000):
    assert threading.get_ident() in sys._current_frames()
is_over.set()
for thread in threads:
    thread.join()
print(gc.isenabled())
"""


@pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 11, 9), reason="only this Python stands still")
def test_no_process_stands_still() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "True\n"
