"""The store of snapshots: what it keeps, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, SavedTensor, part_name, write_part
from singa_dask.runtime.checkpoints.manifest import SnapshotStore, keep_in_memory, make_manifest, name_of_life


def name(step: int, index: int = 0, life: int = 0) -> str:
    return f"step-{step}/{name_of_life(part_name(index, 2), life)}"


def store_with(*parts: tuple[int, int, int]) -> SnapshotStore:
    """Return a store with parts (step, index, life), put in this order."""
    store = SnapshotStore()
    for part in parts:
        store.put("job", name(*part), part[0], b"%d-%d-%d" % part)
    return store


@pytest.mark.parametrize(
    ("put", "wanted"),
    [
        ([(2, 0, 0), (4, 0, 0)], [(2, 0, 0), (4, 0, 0)]),
        ([(2, 0, 0), (4, 0, 0), (6, 0, 0)], [(4, 0, 0), (6, 0, 0)]),
        ([(2, 0, 0), (4, 0, 0), (6, 0, 0), (6, 1, 0)], [(4, 0, 0), (6, 0, 0), (6, 1, 0)]),
        # the second life began at step 2: what the first had of step 4 or later is of no use
        ([(2, 0, 0), (4, 0, 0), (4, 0, 1)], [(2, 0, 0), (4, 0, 1)]),
        ([(2, 0, 0), (6, 0, 0), (4, 0, 1)], [(2, 0, 0), (4, 0, 1)]),
        ([(2, 0, 0), (4, 0, 0), (2, 0, 0)], [(2, 0, 0)]),
    ],
)
def test_of_each_part_the_newest_two_steps_stay(
    put: Sequence[tuple[int, int, int]], wanted: Sequence[tuple[int, int, int]]
) -> None:
    store = store_with(*put)
    assert set(store.jobs["job"]) == {name(*part) for part in wanted}
    for part in wanted:
        assert store.get("job", name(*part)) == b"%d-%d-%d" % part


@pytest.mark.parametrize(("step", "wanted"), [(4, [4]), (6, [6]), (7, [])])
def test_other_steps_are_dropped(step: int, wanted: list[int]) -> None:
    store = store_with((4, 0, 0), (6, 0, 0))
    store.discard_others("job", step)
    assert list(store.jobs["job"]) == [name(step) for step in wanted]


def test_jobs_do_not_share() -> None:
    store = store_with((2, 0, 0), (4, 1, 0))
    store.put("other", name(9), 9, b"")
    store.discard_others("other", 10)
    assert store.get("other", name(2)) is None
    store.forget("job")
    for unknown in ("job", "nobody"):
        store.forget(unknown)
        store.discard_others(unknown, 3)
        assert unknown not in store.jobs and store.get(unknown, name(2)) is None


def test_a_part_that_is_kept_is_read_by_its_name() -> None:
    store = SnapshotStore()

    def keep(step: int, file: str, content: bytes) -> list[str]:
        store.put("job", file, step, content)
        return ["tcp://here", "tcp://there"]

    values = np.arange(6, dtype=np.float32)
    part = write_part(partial(keep_in_memory, keep, 8, life=3), 0, 1, [SavedTensor(0, 0, "value", 8, values)], ["w"])
    assert part["file"] == "step-8/part-0-of-1.life-3.safetensors"
    assert part["holders"] == ["tcp://here", "tcp://there"]
    facts = {"step": 8, "groups": {}, "params": {"w": {"shape": [2, 3], "dtype": "float32"}}}
    found = Checkpoint.from_manifest(make_manifest([part], facts), lambda file: store.get("job", file), "snapshot")
    np.testing.assert_array_equal(found.values("w"), values.reshape(2, 3))
