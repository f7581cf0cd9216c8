"""The work of verbs that need the run time, a file each; imported when the verb is called, not for its help."""

from __future__ import annotations

__all__: list[str] = []
