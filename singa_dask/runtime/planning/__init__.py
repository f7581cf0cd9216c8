"""What is decided before a job starts: where its units run, on which devices, with which nets."""

from __future__ import annotations

__all__: list[str] = []
