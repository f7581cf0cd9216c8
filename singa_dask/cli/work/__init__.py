"""What the verbs do that need the run time: a file each, imported when its command is called, not for its help."""

from __future__ import annotations

__all__: list[str] = []
