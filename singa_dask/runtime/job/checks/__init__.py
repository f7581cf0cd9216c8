"""Checks of a job before it starts.

`job`: checks its nets, records and memory, and finds likely mistakes. `files`: checks that Dask workers reach its run
directory, and read the same files.
"""

__all__: list[str] = []
