"""Convert files of other formats to stores.

`conversion` has the function `convert`, and `request` the arguments of `convert`. `source_kinds` opens the files to
convert. `plan` decides which files to write. `tasks` has the units of work, which any process can execute.
"""

from singa_dask.data.convert.conversion import Run, convert, run_here
from singa_dask.data.convert.request import ConvertRequest, backend_of, parse_split

__all__ = ["ConvertRequest", "Run", "backend_of", "convert", "parse_split", "run_here"]
