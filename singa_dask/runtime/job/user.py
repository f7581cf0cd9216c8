"""Who runs this process, for those who see what it does to a job."""

from __future__ import annotations

import getpass
import os
import socket

__all__ = ["this_user"]


def this_user() -> str:
    """Return ``user@host`` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
