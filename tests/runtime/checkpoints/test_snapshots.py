"""The store of snapshots: what it keeps, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, SavedTensor, part_name, write_part
from singa_dask.runtime.checkpoints.manifest import incarnation_name, make_manifest
from singa_dask.runtime.checkpoints.snapshots import SnapshotStore, store_in_memory


def name(step: int, index: int = 0, incarnation: int = 0) -> str:
    return f"step-{step}/{incarnation_name(part_name(index, 2), incarnation)}"


def store_with(*parts: tuple[int, int, int], known: int = 0) -> SnapshotStore:
    """Return a store with parts (step, index, incarnation), put in this order."""
    store = SnapshotStore()
    for part in parts:
        store.put("job", name(*part), part[0], b"%d-%d-%d" % part, known)
    return store


@pytest.mark.parametrize(
    ("put", "known", "wanted"),
    [
        ([(2, 0, 0), (4, 0, 0)], 0, [(4, 0, 0)]),
        ([(2, 0, 0), (4, 0, 0)], 2, [(2, 0, 0), (4, 0, 0)]),
        ([(2, 0, 0), (4, 0, 0), (6, 0, 0)], 2, [(2, 0, 0), (6, 0, 0)]),
        ([(2, 0, 0), (2, 1, 0), (4, 0, 0), (6, 0, 0), (6, 1, 0)], 2, [(2, 0, 0), (2, 1, 0), (6, 0, 0), (6, 1, 0)]),
        # the second incarnation began at step 2: what the first had of step 4 or later is of no use
        ([(2, 0, 0), (4, 0, 0), (4, 0, 1)], 2, [(2, 0, 0), (4, 0, 1)]),
        ([(2, 0, 0), (6, 0, 0), (4, 0, 1)], 2, [(2, 0, 0), (4, 0, 1)]),
    ],
)
def test_of_each_part_the_newest_and_the_known_one_stay(
    put: Sequence[tuple[int, int, int]], known: int, wanted: Sequence[tuple[int, int, int]]
) -> None:
    store = store_with(*put, known=known)
    assert set(store.jobs["job"]) == {name(*part) for part in wanted}
    for part in wanted:
        assert store.get("job", name(*part)) == b"%d-%d-%d" % part


def test_jobs_do_not_share() -> None:
    store = store_with((2, 0, 0), (4, 1, 0))
    store.put("other", name(9), 9, b"", 0)
    assert store.get("other", name(2)) is None
    store.forget("job")
    assert list(store.jobs) == ["other"]
    for unknown in ("job", "nobody"):
        store.forget(unknown)
        assert unknown not in store.jobs and store.get(unknown, name(2)) is None


def test_a_part_that_is_kept_is_read_by_its_name() -> None:
    store = SnapshotStore()

    def keep(step: int, file: str, content: bytes, known: int) -> list[str]:
        store.put("job", file, step, content, known)
        return ["tcp://here", "tcp://there"]

    values = np.arange(6, dtype=np.float32)
    part = write_part(
        partial(store_in_memory, keep, 8, 6, incarnation=3), 0, 1, [SavedTensor(0, 0, "value", 8, values)], ["w"]
    )
    assert part["file"] == "step-8/part-0-of-1.life-3.safetensors"
    assert part["holders"] == ["tcp://here", "tcp://there"]
    facts = {"step": 8, "groups": {}, "params": {"w": {"shape": [2, 3], "dtype": "float32"}}}
    found = Checkpoint.from_manifest(make_manifest([part], facts), lambda file: store.get("job", file), "snapshot")
    np.testing.assert_array_equal(found.values("w"), values.reshape(2, 3))
