"""Decide before a job starts: the process, Dask worker and device of each unit, threads, and nets."""

__all__: list[str] = []
