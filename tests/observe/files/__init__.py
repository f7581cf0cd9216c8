"""Tests of singa_dask.observe.files."""
