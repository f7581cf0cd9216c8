"""Data of Python objects for jobs: arrays and frames become part files of records, which input layers read as ever."""

from __future__ import annotations

__all__: list[str] = []
