"""Stalls: a job without a step for a minute is named, once, and what its units wait for."""

from __future__ import annotations

from singa_dask.runtime.job.record import Stalls


def test_a_job_that_goes_on_is_not_named() -> None:
    stalls = Stalls()
    assert not any(stalls.look({"0": step}, {}, 30.0 * step) for step in range(100))


def test_one_that_does_not_is_named_when_the_time_has_doubled() -> None:
    stalls = Stalls()
    waits = {"worker-0-1": ("records of layer data", 60.0), "worker-0-0": ("update of param w", 61.0)}
    said = {now: text for now in range(0, 300, 5) if (text := stalls.look({"0": 7}, waits, float(now)))}
    assert list(said) == [60, 120, 240]
    assert said[60] == (
        "no step for 60 s. worker-0-0 waits for update of param w (61 s); "
        "worker-0-1 waits for records of layer data (60 s)."
    )
    assert not stalls.look({"0": 8}, waits, 300.0)
    assert "No unit waits" in stalls.look({"0": 8}, {}, 360.0)
