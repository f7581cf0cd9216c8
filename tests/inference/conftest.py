"""Jobs and a cluster for the tests of trained nets: those of the run time."""

from __future__ import annotations

from tests.runtime.conftest import client, known, nannies, run_job, run_once

__all__ = ["client", "known", "nannies", "run_job", "run_once"]
