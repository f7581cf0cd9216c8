"""Processes that Dask's nannies start use freed memory again while they host units."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource
from singa_dask.runtime.job.dask_worker.freed_memory import keep_freed_memory

def faults():
    # arrays of bytes come from malloc
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        bytearray(b"x") * (4 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

cold = faults()
with keep_freed_memory():
    with keep_freed_memory():
        faults()
    kept = faults()
print(cold, kept, faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults of glibc's malloc")
def test_freed_arrays_cause_no_page_faults_while_units_run() -> None:
    environment = {"MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    cold, kept, after = map(int, done.stdout.split())
    n_pages = 20 * (4 << 20) // 4096
    assert kept < n_pages // 100 < n_pages // 2 < cold
    assert after > n_pages // 2
