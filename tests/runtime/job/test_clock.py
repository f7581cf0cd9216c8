"""Clocks of hosts are compared with that of the scheduler."""

from __future__ import annotations

import asyncio
import time

import pytest

from singa_dask.runtime.job.site import measure_clock, read_clock


def test_a_clock_that_differs_is_corrected() -> None:
    async def ask() -> float:
        return time.time() + 3600

    clock = asyncio.run(measure_clock(ask))
    assert clock.offset_s == pytest.approx(3600, abs=clock.error_s + 1e-3)


def test_a_clock_that_may_be_the_same_is_left_alone() -> None:
    async def ask() -> float:
        return read_clock()

    assert asyncio.run(measure_clock(ask)).offset_s == 0
