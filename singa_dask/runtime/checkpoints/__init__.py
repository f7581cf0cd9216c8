"""Checkpoints: writing, finding and reading them, also those of SINGA, and which of them are kept."""

from __future__ import annotations

__all__: list[str] = []
