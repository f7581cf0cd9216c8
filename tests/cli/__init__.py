"""Tests of singa_dask.cli."""
