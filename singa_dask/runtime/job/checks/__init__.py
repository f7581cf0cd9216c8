"""Checks of a job before it starts.

`job`: checks its nets, records and memory, and finds likely mistakes. `seen_files`: checks that Dask workers can reach
its files.
"""

__all__: list[str] = []
