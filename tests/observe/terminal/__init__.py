"""Tests of singa_dask.observe.terminal."""
