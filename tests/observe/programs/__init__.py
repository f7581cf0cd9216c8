"""Tests of singa_dask.observe.programs."""
