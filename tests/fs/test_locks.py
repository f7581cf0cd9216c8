"""Locks on open files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from singa_dask.fs import locks


@contextlib.contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """Hold a lock file as a process does that is stopped."""
    with path.open("ab") as file:
        assert locks.try_lock(file)
        yield


def test_a_lock_is_waited_for_while_there_is_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def pause(_: float) -> None:
        nonlocal now
        now += 1.0

    monkeypatch.setattr(locks, "pause", pause)
    monkeypatch.setattr(locks.time, "monotonic", lambda: now)
    with held_lock(tmp_path / "lock"), (tmp_path / "lock").open("ab") as file:
        # progress until second 100, then none
        assert not locks.wait_for_lock(file, 10, lambda: min(now, 100))
    assert 110 <= now <= 112


def test_files_that_nobody_has_locked_are_deleted(tmp_path: Path) -> None:
    dead, living = tmp_path / "dead", tmp_path / "living"
    dead.touch()
    with held_lock(living):
        assert locks.delete_unlocked([dead, living, tmp_path / "gone"]) == [living]
        assert list(tmp_path.iterdir()) == [living]
        assert locks.delete_unlocked([living], lambda path: path.rename(dead)) == [living]
    assert locks.delete_unlocked([living], lambda path: path.rename(dead)) == []
    assert list(tmp_path.iterdir()) == [dead]
