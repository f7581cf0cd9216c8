"""``python -m singa_dask`` runs ``singa-dask``."""

from __future__ import annotations

from singa_dask.cli import main

if __name__ == "__main__":
    main(prog_name="python -m singa_dask")
