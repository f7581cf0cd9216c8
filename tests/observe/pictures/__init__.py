"""Tests of singa_dask.observe.pictures."""
