"""A job that is profiled tells what its units did in some steps, and how long each layer took."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask.cancellation import Cancellation
from singa_dask.comm.message import Address, Message
from singa_dask.conf import Phase
from singa_dask.layers import Layer, Speed
from singa_dask.layers.activation import Elementwise
from singa_dask.layers.neuron import InnerProduct
from singa_dask.runtime.units import profiler
from singa_dask.runtime.units.profiler import Profiler, Trace
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, Outcome, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
PROFILE = {"first_step": 2, "steps": 3}
TESTED = {"test_freq": 4, "test_steps": 1}


def profiled(outcome: Outcome) -> dict[int, list[list[Any]]]:
    """Return the spans of each process."""
    found: dict[int, list[list[Any]]] = {}
    for event in outcome.events:
        if event["event"] == "profile":
            before, spans = found.get(event["process"], []), event["spans"]
            assert event["recorded"] == len(spans)
            assert spans[: len(before)] == before
            found[event["process"]] = spans
    return found


def names(spans: list[list[Any]], track: str, kind: str) -> list[str]:
    return [name for where, name, of, *_ in spans if (where, of) == (track, kind)]


def test_one_process_tells_each_layer_in_each_step(run_once: Run) -> None:
    outcome = run_once(mlp(profile=PROFILE, **TESTED))
    (spans,) = profiled(outcome).values()
    assert names(spans, "worker-0-0", "step") == ["step 2", "step 3", "step 4"]
    assert "test" in names(spans, "worker-0-0", "test")
    assert names(spans, "worker-0-0", "forward").count("fc1 forward") == 3 + 1
    assert names(spans, "worker-0-0", "backward").count("fc2 backward") == 3
    assert len(names(spans, "server-0-0", "update")) >= 3
    assert "update" in names(spans, "server-0-0", "update")[0]


def test_the_summary_has_the_time_of_each_layer(run_once: Run) -> None:
    report = run_once(mlp(profile=PROFILE, **TESTED)).reports["worker-0-0"]
    assert [*report["layers"]] == ["data", "fc1", "act1", "drop1", "fc2", "loss"]
    assert all(set(times) == {"forward_ms", "backward_ms"} for times in report["layers"].values())
    assert report["layers"]["fc1"]["forward_ms"] > 0 < report["layers"]["fc1"]["backward_ms"]
    assert report["layers"]["data"]["backward_ms"] == 0
    assert set(report["step_parts"]) == {"compute_ms", "data_ms", "params_ms"}


@pytest.mark.parametrize("cluster", circles([ALLREDUCE, DOWNPOUR], long=1), ids=["allreduce", "downpour"])
def test_every_message_between_processes_arrives(run_job: Run, cluster: dict[str, Any]) -> None:
    outcome = run_job(mlp(profile=PROFILE, cluster=cluster))
    processes = profiled(outcome)
    assert set(processes) == {0, 1}
    ends = [span[-1].split() for spans in processes.values() for span in spans if span[-1]]
    sent, received = ({number for end, number in ends if end == which} for which in ("out", "in"))
    assert sent == received
    assert len(sent) >= 2 * PROFILE["steps"]
    for unit in (unit for unit in outcome.reports if unit.startswith("worker")):
        steps = [name for spans in processes.values() for name in names(spans, unit, "step")]
        assert steps == ["step 2", "step 3", "step 4"]
    assert [unit for unit, report in outcome.reports.items() if "layers" in report] == ["worker-0-0"]


def test_all_workers_of_a_partitioned_net_tell_their_layers(run_job: Run) -> None:
    net = {**mlp().neuralnet.model_dump(mode="json"), "partition_dim": 1}
    outcome = run_job(mlp(profile=PROFILE, cluster=ALLREDUCE, neuralnet=net))
    for unit in ("worker-0-0", "worker-0-1"):
        assert "fc1" in outcome.reports[unit]["layers"]
        assert "workers_ms" in outcome.reports[unit]["step_parts"]


def test_it_changes_no_bit(run_once: Run) -> None:
    assert run_once(mlp(profile=PROFILE, **TESTED)).losses() == run_once(mlp(**TESTED)).losses()


def test_a_job_that_is_not_profiled_tells_nothing(run_once: Run) -> None:
    outcome = run_once(mlp(**TESTED))
    assert not profiled(outcome)
    assert "layers" not in outcome.reports["worker-0-0"]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "MAX_SPANS", 2)
    events: list[dict[str, Any]] = []
    trace = Trace(0, events.append)
    for step in range(5):
        trace.add("worker-0-0", f"step {step}", "step", 0)
    trace.flush()
    trace.flush()
    assert [(event["recorded"], len(event["spans"])) for event in events] == [(5, 2)]


def test_messages_outside_of_the_window_are_counted_alone() -> None:
    events: list[dict[str, Any]] = []
    trace = Trace(0, events.append)
    trace.open(range(2, 4))
    for step in (-1, 1, 2, 3, 4):
        message = Message("update", Address.stub(0), Address.server(0, 1), step=step)
        trace.send(1, message, lambda: None)
    trace.flush()
    (event,) = events
    assert [(span[1], span[5]["step"], span[6]) for span in event["spans"]] == [
        ("update", 2, "out 0-1-3"),
        ("update", 3, "out 0-1-4"),
    ]


def test_a_worker_begins_while_messages_come() -> None:
    """Steps to record are added while somebody looks through them."""
    trace = Trace(0, lambda event: None)

    class Steps:
        stop = 0

        def __contains__(self, step: int) -> bool:
            trace.open(range(step, step + 1))
            return False

    steps: Any = Steps()
    trace.open(steps)
    trace.covers(4)
    assert trace.covers(4)


class Slow(Layer):
    """A layer of a user's own, on numpy."""


class Fused(Elementwise):
    """One that says what it computes."""


class Kernels(Layer):
    """One that calls kernels."""

    speed = Speed(capturable=True)


@pytest.mark.parametrize(
    ("cls", "layer_ms", "is_named"),
    [(Slow, 6.0, True), (Slow, 4.0, False), (Fused, 6.0, False), (Kernels, 6.0, False), (InnerProduct, 6.0, False)],
)
def test_layers_on_numpy_that_take_most_of_a_step_are_named(
    caplog: pytest.LogCaptureFixture, cls: type[Layer], layer_ms: float, is_named: bool
) -> None:
    layer = cls.__new__(cls)
    layer.conf_name = "act"
    net = SimpleNamespace(layers=[layer], ops=None, is_partitioned=False)
    nets: Any = {Phase.TRAIN: net}
    made = Profiler("worker-0-0", nets, Cancellation(), None, range(2), lambda: (0.0, 0.0, 0.0))
    made._layers = [defaultdict(float, {("act", "forward"): layer_ms / 3, ("act", "backward"): 2 * layer_ms / 3})]
    made._parts = [{"compute_ms": 8.0, "data_ms": 1.0, "params_ms": 1.0, "workers_ms": 0.0}]
    with caplog.at_level(logging.WARNING):
        made.summary()
    wanted = ["layer act: test_profile.Slow takes 60 % of a step, with functions of numpy"] if is_named else []
    found = [line.partition(" instead")[0].replace("tests.runtime.units.", "") for line in caplog.messages]
    assert found == wanted
