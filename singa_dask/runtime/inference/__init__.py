"""Inference: what trained nets compute of records, and text that they write."""

from __future__ import annotations

__all__: list[str] = []
