"""The command line: one click tree for ``singa-dask`` and ``dask singa``.

`main` has the tree, and the table of commands that share a file; other commands have a file of their own name.

Shared by commands
    `options`, `reading`, `inference_options`, `output_options`: options. `printing`: messages and tables. `job`: job
    files. `opening`: stores. `clusters`: clusters and signals. `tasks`: tasks with progress.
The command `compare`
    `topologies`: the topologies to compare. `trials`: the runs. `comparison`: the result.
Inspecting data
    `inspection`: contents of a store. `findings`: likely problems. `inspection_text`: both as text. `raw_tables`:
    tables as `init` reads them. `picture_layout`, `picture_sheet`: pictures. `reading_speed`: records per second.
Writing a job for data
    `init`: a package.
Other
    `dask_scheduler`: the command `dask-scheduler`.
"""

from singa_dask.cli.main import main

__all__ = ["main"]
