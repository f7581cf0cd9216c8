"""Write, find, read and delete checkpoints; read checkpoints of SINGA."""

__all__: list[str] = []
