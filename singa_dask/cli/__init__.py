"""The command line: one click tree for ``singa-dask`` and ``dask singa``.

`main` has the tree, and the table of commands that share a file; other commands have a file of their own name.

Shared by commands
    `options`, `reading`, `outputs`: options. `printing`: messages and tables. `job`: job files. `opening`: stores.
    `clusters`: clusters and signals. `tasks`: tasks with progress. `trials`: the runs of `compare`.
Inspecting data
    `inspection`: contents of a store. `findings`: likely problems. `inspection_text`: both as text. `picture_layout`,
    `picture_sheet`: pictures. `reading_speed`: records per second.
Writing a job for data
    `init`: a package.
"""

from singa_dask.cli.main import main

__all__ = ["main"]
