"""Which file systems are known to be shared by hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from singa_dask.fs import mounts

MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/local tmpfs rw 0 0
server:/b /mnt/with\040blank cifs rw 0 0
server:/c /mnt/données nfs4 rw 0 0
server:/c /mnt/données nfs4 rw 0 0
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
        ("/mnt/données/x", "nfs4"),
        ("/mnt/données/x", "nfs4"),
    ],
)
def test_network_filesystems_are_known_by_their_mounts(
    path: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text(MOUNTS.strip())
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mounts")
    assert mounts.network_filesystem(Path(path)) == kind
