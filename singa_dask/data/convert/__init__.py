"""Convert: converts files of other formats to stores."""

from __future__ import annotations

from singa_dask.data.convert.conversion import Run, backend_of, convert, parse_split, run_here

__all__ = ["Run", "backend_of", "convert", "parse_split", "run_here"]
