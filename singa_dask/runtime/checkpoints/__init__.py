"""Checkpoints: writing, finding, reading and deleting them; also reading those of SINGA."""

from __future__ import annotations

__all__: list[str] = []
