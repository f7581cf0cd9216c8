"""Network filesystems among the mounts of this host."""

from __future__ import annotations

import os
from pathlib import Path

# types of network filesystems, spelled as in /proc/mounts
NETWORK_FILESYSTEMS = frozenset(
    "9p afs beegfs ceph cifs coda fuse.ceph fuse.ceph-fuse fuse.glusterfs fuse.juicefs fuse.s3fs fuse.sshfs glusterfs "
    "gpfs lustre ncpfs nfs nfs4 orangefs smb2 smb3 smbfs virtiofs wekafs".split()
)
MOUNTS = Path("/proc/self/mounts")


def network_filesystem(path: Path) -> str:
    """Return the type of the network filesystem that contains a directory; empty if it is local.

    The result is also empty if the type is unknown, as on systems other than Linux.
    """
    mounts = MOUNTS.read_bytes() if MOUNTS.exists() else b""
    target, longest, kind = path.resolve(), -1, ""
    for line in mounts.splitlines():
        _, place, kind_there = line.split()[:3]
        # /proc/mounts escapes blanks in names; the codec decodes other bytes as latin-1
        mount = Path(os.fsdecode(place.decode("unicode_escape").encode("latin-1")))
        # if several filesystems are mounted at the same place, the last one is visible
        if target.is_relative_to(mount) and len(mount.parts) >= longest:
            longest, kind = len(mount.parts), kind_there.decode()
    return kind if kind in NETWORK_FILESYSTEMS else ""
