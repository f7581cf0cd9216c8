"""Data of Python objects for jobs: arrays and frames become part files of records, which input layers read as ever."""

__all__: list[str] = []
