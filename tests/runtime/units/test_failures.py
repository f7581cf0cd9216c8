"""What is said of a job that fails: its reason once, for all units that failed alike."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any

import pytest

from singa_dask.comm.message import Address
from singa_dask.errors import (
    A_BUG,
    CheckpointError,
    CommError,
    ConfigError,
    DataError,
    LostUnitError,
    NumericError,
)
from singa_dask.runtime import plan_processes
from singa_dask.runtime.job.driver.result import summarise
from singa_dask.runtime.units.unit_errors import describe_error, may_succeed_again
from tests.cli.conftest import Call, call, job
from tests.runtime.harness import ALLREDUCE, Outcome, last_event, mlp, run_job, start_hosts
from tests.runtime.units.test_ends import Run, with_trap

__all__ = ["call", "job", "run_job"]

NAN = "step 2, layer loss: the loss is not finite."


def report(unit: str, reason: str, cause: str, **more: Any) -> dict[str, Any]:
    return {"unit": unit, "state": "failed", "reason": reason, "cause": cause, "exit_code": 1, "expected": True, **more}


def reason_of(*reports: dict[str, Any]) -> str:
    layout = plan_processes(mlp(cluster=ALLREDUCE).cluster)
    known = {each["unit"]: each for each in reports}
    return summarise("mlp", "mlp-1", layout, last_event(layout, known, reports[0])).reason


def test_units_that_fail_alike_are_counted() -> None:
    first, second, third = (report(f"worker-0-{i}", f"worker-0-{i}, {NAN}", NAN) for i in range(3))
    other = report("worker-0-1", "worker-0-1: ValueError: too bad", "ValueError: too bad")
    assert reason_of(first) == f"worker-0-0, {NAN}"
    assert reason_of(first, other) == f"worker-0-0, {NAN}"
    assert reason_of(first, second) == f"worker-0-0 and 1 other, {NAN}"
    assert reason_of(first, second, third) == f"worker-0-0 and 2 others, {NAN}"


def test_so_are_those_that_fail_in_the_code_of_a_user() -> None:
    cause = "mine.py:9: ValueError: too bad"
    reports = [report(f"worker-0-{i}", f"{cause} (worker-0-{i}, step 3, layer mine)", cause) for i in range(2)]
    assert reason_of(*reports) == f"{cause} (worker-0-0 and 1 other, step 3, layer mine)"


def test_a_want_of_memory_is_no_bug(run_job: Run) -> None:
    outcome: Outcome = run_job(mlp(neuralnet=with_trap(how="need-memory", step=3)))
    failed = outcome.reports["worker-0-0"]
    assert failed["reason"].startswith("worker-0-0, step 3, layer trap: out of memory: Unable to allocate 8.00 PiB")
    assert failed["reason"].endswith(" or raise the limits of the process (ulimit -v, -u).")
    assert failed["expected"]


def test_a_layer_that_names_itself_is_named_once(run_job: Run) -> None:
    net = mlp().model_dump(mode="json")["neuralnet"]
    net["layer"][4]["innerproduct_conf"]["num_output"] = 1
    reason = run_job(mlp(neuralnet=net)).reports["worker-0-0"]["reason"]
    assert re.match(r"worker-0-0, step 0: layer loss: label \d is out of range\.", reason)


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (CommError("a message was lost"), True),
        (LostUnitError("process 1 is gone"), True),
        (raised_from(DataError("hdfs://n/x: no answer within 10 s."), TimeoutError()), True),
        (raised_from(DataError("hdfs://n/x, block 3"), OSError(errno.EIO, "all replicas failed")), True),
        (raised_from(CheckpointError("hdfs://n/x"), raised_from(DataError("x"), ConnectionResetError())), True),
        (raised_from(DataError("x: no such file or directory."), FileNotFoundError(errno.ENOENT, "x")), False),
        (raised_from(CheckpointError("x"), OSError(errno.ENOSPC, "no space left")), False),
        (DataError("x, block 3: wrong crc32c."), False),
        (ConfigError("train_steps: expected a number"), False),
        (NumericError("the loss is not finite."), False),
        (MemoryError(), False),
        (RuntimeError("can't start new thread"), False),
        (ValueError("a mistake of the user"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_failure_says_whether_to_try_again(error: Exception, again: bool) -> None:
    assert describe_error(Address.worker(0, 0), None, error)["retry"] is again


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    error = DataError("x")
    assert not may_succeed_again(raised_from(error, error))


def test_what_nobody_expects_is_called_a_bug(run_job: Run) -> None:
    failed = run_job(mlp(neuralnet=with_trap(how="raise", step=3))).reports["worker-0-0"]
    assert failed["error"].splitlines()[-1] == A_BUG


def test_a_message_that_cannot_be_handled_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    (host,) = start_hosts(mlp(), lambda event: None)
    try:

        def fail(message: Any) -> None:
            raise KeyError("x")

        monkeypatch.setattr(host.router, "post", fail)
        worker = Address.worker(0, 0)
        host._receive(type("Received", (), {"job": "test", "kind": "update", "src": worker, "dst": worker})())
        assert host.failure is not None
        assert host.failure["reason"] == "process 0: update from worker-0-0: KeyError('x')"
        assert host.failure["exit_code"] == 1
        assert host.failure["error"].endswith(A_BUG)
    finally:
        host.close()


@pytest.mark.cluster
def test_a_log_on_a_full_disk_is_warned_of_and_left_out(call: Call, job: Path, tmp_path: Path) -> None:
    log = tmp_path / "run" / "log" / "worker-0-0.log"
    log.parent.mkdir(parents=True)
    log.symlink_to("/dev/full")
    result = call("run", job, "--run-dir", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert f"{log}: [Errno 28] No space left on device" in result.stderr
