"""Locks on open files, and the file systems on which they do not help."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from singa_dask.fs import cache

MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/local tmpfs rw 0 0
server:/b /mnt/with\040blank cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var", ""),
        ("/home", "nfs4"),
        ("/home/me/.cache", "nfs4"),
        ("/home/local/x", ""),
        ("/homes", ""),
        ("/mnt/with blank/x", "cifs"),
    ],
)
def test_network_filesystems_are_known_by_their_mounts(
    path: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text(MOUNTS.strip())
    monkeypatch.setattr(cache, "MOUNTS", tmp_path / "mounts")
    assert cache.network_filesystem(Path(path)) == kind


@contextlib.contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """Hold a lock file as a process does that is stopped."""
    with path.open("ab") as file:
        assert cache.try_lock(file)
        yield


def test_a_lock_is_waited_for_while_there_is_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def pause(_: float) -> None:
        nonlocal now
        now += 1.0

    monkeypatch.setattr(cache, "pause", pause)
    monkeypatch.setattr(cache.time, "monotonic", lambda: now)
    with held_lock(tmp_path / "lock"), (tmp_path / "lock").open("ab") as file:
        # progress until second 100, then none
        assert not cache.wait_for_lock(file, 10, lambda: min(now, 100))
    assert 110 <= now <= 112


def test_files_that_nobody_has_locked_are_deleted(tmp_path: Path) -> None:
    dead, living = tmp_path / "dead", tmp_path / "living"
    dead.touch()
    with held_lock(living):
        assert cache.delete_unlocked([dead, living, tmp_path / "gone"]) == [living]
        assert list(tmp_path.iterdir()) == [living]
        assert cache.delete_unlocked([living], lambda path: path.rename(dead)) == [living]
    assert cache.delete_unlocked([living], lambda path: path.rename(dead)) == []
    assert list(tmp_path.iterdir()) == [dead]
