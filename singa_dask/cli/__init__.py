"""The command line: one click tree for ``singa-dask`` and ``dask singa``, one file a verb or a family of verbs.

`main` has the tree, and the table of verbs that share a file.

What verbs share
    `options`, `reading`, `outputs`: options. `printing`: messages and tables. `job`: job files. `opening`: stores.
    `clusters`: clusters and signals. `tasks`: tasks with progress. `trials`: the runs of `compare`.
Looking at data
    `inspection`: what a store holds. `findings`: likely trouble. `inspection_text`: both as text. `picture_layout`,
    `picture_sheet`: pictures. `reading_speed`: records per second.
Writing a job for data
    `init`: a folder.
"""

from singa_dask.cli.main import main

__all__ = ["main"]
