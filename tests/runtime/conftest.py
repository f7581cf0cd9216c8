"""Fixtures of the run time's tests."""

from tests.runtime.harness import run_job

__all__ = ["run_job"]
