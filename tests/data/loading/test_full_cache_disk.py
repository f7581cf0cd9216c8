"""The disk of the cache is full in mid-epoch: the epoch ends with the same records."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import STORES, open_store
from tests.contracts.records import pixels

N = 8000
BATCH = 100
# more than 64 KiB, so that blocks are cached
BLOCK_BYTES = 100_000
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]

EPOCH = """
import json, sys
from tests.data.loading.test_full_cache_disk import epoch
folder, worker = sys.argv[1:]
print(json.dumps(epoch(folder, int(worker), {"dir": folder + "/cache", "limit_gb": 1})))
"""


def epoch(folder: str, worker: int, cache: dict[str, Any] | None) -> dict[str, Any]:
    """Read one epoch of a worker of two from a folder that counts as far away; return what it read."""
    options: dict[str, Any] = {"path": f"{folder}/far", "target_protocol": "file"}
    if cache is not None:
        options[fs.CACHE] = cache
    ids: list[int] = []
    total = 0
    with open_store("dir://a.arrow", storage_options=options) as store:
        assert not store.mapped
        sampler = Sampler([block.n for block in store.blocks], 2 * BATCH, "block", seed=7)
        with Loader(store, sampler, worker, 2) as loader:
            for _ in range(N // BATCH // 2):
                batch = loader.next()
                ids += batch.ids.tolist()
                total += int(batch.arrays["pixel"].sum())
    return {"ids": ids, "total": total}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("far", "cache"):
        (tmp_path / name).mkdir()
    STORES.find("arrow").write(str(tmp_path / "far" / "a.arrow"), pixels(N, (20, 30)), block_bytes=BLOCK_BYTES)
    return tmp_path


@pytest.fixture
def expected(folder: Path) -> list[dict[str, Any]]:
    found = [epoch(str(folder), worker, None) for worker in range(2)]
    assert sorted(found[0]["ids"] + found[1]["ids"]) == list(range(N))
    assert sum(each["total"] for each in found) == int(pixels(N, (20, 30))["pixel"].astype(np.int64).sum())
    return found


def can_mount() -> bool:
    """Return whether this user may mount a file system in a namespace of its own."""
    if shutil.which("unshare") is None:
        return False
    command = [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.long
@pytest.mark.skipif(not can_mount(), reason="this user may not mount a file system")
def test_two_workers_fill_the_disk_of_their_cache(folder: Path, expected: list[dict[str, Any]]) -> None:
    # the store has 5 MB, the disk 2 MB, the cache may have 1 GB
    mount = f"mount -t tmpfs -o size=2m tmpfs {folder}/cache"
    commands = [f'"$0" -c "$1" {folder} {worker} > {folder}/{worker} &' for worker in range(2)]
    script = "\n".join([mount, *commands, "wait", f"ls {folder}/cache/entries | wc -l"])
    done = subprocess.run(
        [*UNSHARE, "bash", "-c", script, sys.executable, EPOCH], capture_output=True, text=True, check=True
    )
    assert [json.loads((folder / str(worker)).read_text()) for worker in range(2)] == expected
    assert int(done.stdout) > 3
    assert 1 <= done.stderr.count("cannot write to the cache: No space left on device") <= 2, done.stderr
