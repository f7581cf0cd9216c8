"""Measured costs: what is measured and how often, how times are interpolated, and where they are kept."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask.conf import ClusterConf, JobConf, Phase
from singa_dask.layers import Layer
from singa_dask.layers.bridge import Bridge
from singa_dask.planner import costs as costs_module
from singa_dask.planner import loop as loop_module
from singa_dask.planner.cost_table import CostTable, layer_key
from singa_dask.planner.costs import MeasuredCosts
from singa_dask.planner.loop import MIN_PASSES, WARM_UP, Loop, median_s
from singa_dask.runtime.job.driver.record_scaling import compute_scalings
from singa_dask.runtime.job.state.submission import Submission
from singa_dask.runtime.planning.job_stores import with_batchsize, with_stores
from singa_dask.runtime.planning.nets import build_net, build_nets
from singa_dask.training import SCHEDULES

PASSES = {"data forward", "fc forward", "fc backward", "loss forward", "loss backward"}


class FakeLoop(Loop):
    """A pass takes a microsecond a row, of each thread, beside others twice as long; counts what is measured."""

    n_beside = 0
    measured: list[tuple[int, int]]

    def measure(self, n_threads: int) -> tuple[dict[tuple[Layer, str], float], float, float]:
        passes, *_ = super().measure(n_threads)
        self.measured.append((self.net.layers[0].features[0].shape[0], n_threads))
        factor = 1e-6 * (1 + FakeLoop.n_beside) / n_threads
        return {key: factor * key[0].features[0].shape[0] for key in passes}, 1e-3, 3e-3


class FakeNeighbours:
    def __init__(self, *args: Any) -> None: ...

    def busy(self) -> FakeNeighbours:
        return self

    def __enter__(self) -> None:
        FakeLoop.n_beside = 1

    def __exit__(self, *_: object) -> None:
        FakeLoop.n_beside = 0

    def close(self) -> None: ...


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeLoop]:
    """Replace what depends on the machine; it has 4 cores."""
    FakeLoop.measured = []
    monkeypatch.setattr(loop_module, "SECONDS", 0.0)
    monkeypatch.setattr(costs_module, "Loop", FakeLoop)
    monkeypatch.setattr(costs_module, "Neighbours", FakeNeighbours)
    monkeypatch.setattr(costs_module, "cpu_count", lambda: 4)
    for name in ("_measure_step", "_measure_handled", "_measure_pass"):
        monkeypatch.setattr(MeasuredCosts, name, lambda self: 1e-3)
    monkeypatch.setattr(MeasuredCosts, "_measure_update", lambda self, n, size: 1e-5 + 2e-6 * n + 1e-9 * n * size)
    return FakeLoop


def passes_of(job: JobConf, n_workers: int = 1, worker: int = 0) -> dict[str, tuple[Layer, str]]:
    """Return the passes of a worker's net, by name of the layer and verb."""
    job = job.model_copy(update={"cluster": ClusterConf(nworkers_per_group=n_workers)})
    net = build_nets(job, 0, worker)[Phase.TRAIN]
    verbs = [(layer, verb) for layer in net.layers for verb in ("forward", "backward")]
    return {f"{layer.conf_name} {verb}": (layer, verb) for layer, verb in verbs if verb == "forward" or layer.learns}


def test_a_step_computes_each_layer_once(tiny: JobConf) -> None:
    loop = Loop(tiny)
    n_steps = 0

    def count() -> None:
        nonlocal n_steps
        n_steps += 1

    step = loop.step
    loop.step = lambda: (count(), step())  # type: ignore[method-assign,assignment]
    passes, inside_s, step_s = loop.measure(1)
    assert {f"{layer.conf_name} {verb}" for layer, verb in passes} == PASSES
    assert n_steps >= WARM_UP + MIN_PASSES
    assert 0 < max(passes.values()) <= inside_s < step_s


def test_what_is_done_before_each_call_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now, done = [0.0], list[str]()

    def spend(name: str, seconds: float) -> None:
        done.append(name)
        now[0] += seconds

    monkeypatch.setattr(loop_module.time, "perf_counter", lambda: now[0])
    assert median_s(lambda: spend("update", 0.001), lambda: spend("step", 0.039)) == pytest.approx(0.001)
    assert done == ["step", "update"] * 7  # in a quarter of a second


@pytest.mark.long
def test_layers_are_interpolated_between_sizes(tiny: JobConf, tmp_path: Path, fake: type[FakeLoop]) -> None:
    with MeasuredCosts(tiny, tmp_path / "costs.json") as costs:
        for n_workers in (1, 2, 4, 5, 20):
            for layer, verb in passes_of(tiny, n_workers).values():
                assert costs.layer_s(layer, verb, 1, 1) == pytest.approx(20e-6 / n_workers)
        # alone and beside others, in three rounds
        assert fake.measured == [(n, 1) for n in (20, 10, 5, 1) for _ in range(6)]
        layer, verb = passes_of(tiny)["fc backward"]
        busy = [costs.layer_s(layer, verb, 1, n_busy) for n_busy in (1, 2, 4, 64)]
        assert busy == pytest.approx([20e-6, 20e-6 * 4 / 3, 40e-6, 40e-6])
        # with as many threads as the machine has, and with more: twice as many take half the time
        assert [costs.layer_s(layer, verb, n, n) for n in (4, 8, 16)] == pytest.approx([5e-6, 2.5e-6, 1.25e-6])


@pytest.mark.long
def test_layers_cut_by_features_are_those_of_their_worker(tiny: JobConf, tmp_path: Path, fake: type[FakeLoop]) -> None:
    layers = [layer.model_copy(update={"partition_dim": int(layer.name == "fc")}) for layer in tiny.neuralnet.layer]
    job = tiny.with_layers(layers)
    with MeasuredCosts(tiny, tmp_path / "costs.json") as costs:
        for worker in (0, 1):
            net = build_nets(job.model_copy(update={"cluster": ClusterConf(nworkers_per_group=2)}), 0, worker)
            for layer in net[Phase.TRAIN].layers:
                seconds = costs.of(job).layer_s(layer, "forward", 1, 1)
                rows = 0 if isinstance(layer, Bridge) else layer.features[0].shape[0]
                assert seconds == pytest.approx(1e-6 * rows), layer.name


def test_updates_cost_by_call_slice_and_value(tiny: JobConf, tmp_path: Path, fake: type[FakeLoop]) -> None:
    with MeasuredCosts(tiny, tmp_path / "costs.json") as costs:
        assert costs.update_s([], 1) == 0
        assert costs.update_s([1000, 3000], 1) == pytest.approx(1e-5 + 2 * 2e-6 + 4000e-9)


def test_a_rate_that_ends_with_the_job_needs_no_number_of_steps(
    tiny: JobConf, tmp_path: Path, fake: type[FakeLoop]
) -> None:
    rate = tiny.updater.learning_rate.model_copy(update={"type": "Cosine"})
    job = tiny.model_copy(update={"updater": tiny.updater.model_copy(update={"learning_rate": rate})})
    with MeasuredCosts(job, tmp_path / "costs.json") as costs:
        for timed in (costs._job, costs.of(job)._variant):
            schedule = SCHEDULES.find(timed.updater.learning_rate.type)
            assert schedule(timed.updater.learning_rate)(5) > 0


@pytest.mark.long
def test_a_second_plan_measures_nothing(
    tiny: JobConf, tmp_path: Path, fake: type[FakeLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new" / "costs.json"

    def all_of(costs: MeasuredCosts) -> list[float]:
        times = [costs.layer_s(layer, verb, 1, 2) for layer, verb in passes_of(tiny, 2).values()]
        return [*times, costs.update_s([10], 2), costs.copied_byte_s(2), costs.step_s, costs.handled_s, costs.woken_s]

    with MeasuredCosts(tiny, file) as costs:
        first = all_of(costs)
    n_measured = len(fake.measured)
    monkeypatch.setattr(costs_module, "median_s", lambda *calls: pytest.fail("it was measured before"))
    with MeasuredCosts(tiny, file) as costs:
        assert all_of(costs) == first
    assert len(fake.measured) == n_measured


@pytest.mark.parametrize("text", ["{", "[]", '{"fc": {"1": [1]}}', '{"fc": {"x": [1, 2]}}', '{"fc": 3}', "\xff"])
def test_a_damaged_file_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    file = tmp_path / "costs.json"
    file.write_text(text, encoding="latin-1")
    table = CostTable(file)
    assert "cannot be read" in caplog.text
    table.add("fc", (1.0, 2.0), 8)
    table.save()
    assert json.loads(file.read_text()) == {"fc": {"8": [1.0, 2.0]}}


def test_what_others_have_written_meanwhile_is_kept(tmp_path: Path) -> None:
    one, other = (CostTable(tmp_path / "costs.json") for _ in range(2))
    one.add("fc", (1.0, 1.0), 8)
    one.save()
    other.add("fc", (2.0, 2.0), 16)
    other.save()
    table = CostTable(tmp_path / "costs.json")
    assert [table.get("fc", size) for size in (8, 12, 16)] == [(1.0, 1.0), (1.5, 1.5), (2.0, 2.0)]


def test_times_between_sizes_are_on_a_line_and_never_below_zero(tmp_path: Path) -> None:
    table = CostTable(tmp_path / "costs.json")
    assert table.get("fc", 4) is None
    table.add("fc", (1.0, 2.0), 10)
    assert table.get("fc", 4) is None
    table.add("fc", (3.0, 4.0), 20)
    assert table.get("fc", 15) == (2.0, 3.0)
    assert table.get("fc", 30) == (5.0, 6.0)
    # the line is at 0.2 there
    assert table.get("fc", 6) == (0.6, 1.2)


def test_batches_and_partitions_make_no_difference_to_a_layer(tiny: JobConf) -> None:
    cut = [layer.model_copy(update={"partition_dim": int(layer.name == "fc")}) for layer in tiny.neuralnet.layer]
    net, smaller = build_net(tiny, Phase.TRAIN), build_net(with_batchsize(tiny.with_layers(cut), 5), Phase.TRAIN)
    for layer, other in zip(net.layers, smaller.layers, strict=True):
        assert layer_key(layer)[0] == layer_key(other)[0]
        assert (layer_key(layer)[1], layer_key(other)[1]) == (20, 5)
    assert len({layer_key(layer)[0] for layer in net.layers}) == len(net.layers)


def test_runs_of_a_plan_make_no_pass_over_all_records(
    tiny: JobConf, tmp_path: Path, fake: type[FakeLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[JobConf] = []

    class Failing:
        def __init__(self, run: Submission, *_: Any, **more: Any) -> None:
            jobs.append(run.conf)

        def run(self) -> SimpleNamespace:
            return SimpleNamespace(state="failed")

    monkeypatch.setattr(costs_module, "Driver", Failing)
    monkeypatch.setattr(costs_module, "embedded_cluster", nullcontext)
    scaled = with_stores(tiny, lambda store: {"standardise": True, "mean_value": [], "std_value": []})
    with MeasuredCosts(scaled, tmp_path / "costs.json") as costs:
        costs.crowding(1)
    assert [compute_scalings(job, (), (), pytest.fail, pytest.fail) for job in jobs] == [{}]


@pytest.mark.long
def test_costs_of_this_machine(tiny: JobConf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real neighbours, and a real run for the rest of a step."""
    monkeypatch.setattr(loop_module, "SECONDS", 0.02)
    with MeasuredCosts(tiny, tmp_path / "costs.json") as costs:
        for layer, verb in passes_of(tiny).values():
            assert 0 < costs.layer_s(layer, verb, 1, 1) <= costs.layer_s(layer, verb, 1, 64)
        assert 0 < costs.update_s([8], 1) <= costs.update_s([7850], 64)
        assert min(costs.woken_s, costs.copied_byte_s(1)) > 0
        # what is left of a real step beside its layers, which took longer if the machine was busy
        assert min(costs.handled_s, costs.step_s) >= 0
        assert min(costs.crowding(n_groups) for n_groups in (1, 2)) >= 1
