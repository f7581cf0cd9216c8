"""Convert: converts files of other formats to stores."""

from singa_dask.data.convert.conversion import Run, convert, run_here
from singa_dask.data.convert.plan import backend_of, parse_split

__all__ = ["Run", "backend_of", "convert", "parse_split", "run_here"]
