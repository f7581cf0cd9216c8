"""Checkpoints: writing, finding, reading and deleting them; also reading those of SINGA."""

__all__: list[str] = []
