"""Convert: converts files of other formats to stores.

`conversion`: the function `convert`. `request`: its arguments. `source_kinds`: what it reads. `plan`: what it writes.
`tasks`: the units of work.
"""

from singa_dask.data.convert.conversion import Run, convert, run_here
from singa_dask.data.convert.request import backend_of, parse_split

__all__ = ["Run", "backend_of", "convert", "parse_split", "run_here"]
