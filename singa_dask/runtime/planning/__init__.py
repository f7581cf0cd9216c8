"""Decisions made before a job starts: the process and device of each unit, threads, and nets."""

from __future__ import annotations

__all__: list[str] = []
