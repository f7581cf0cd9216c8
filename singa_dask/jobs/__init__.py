"""Jobs and runs as Python objects, used by the command line, too; users import them from `singa_dask`."""

__all__: list[str] = []
