"""Write, find, read and delete checkpoints; read those of SINGA."""

__all__: list[str] = []
