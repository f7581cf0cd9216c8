"""Inference: outputs and metrics of trained nets, predictions, and sampled text."""

from __future__ import annotations

__all__: list[str] = []
