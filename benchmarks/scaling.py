"""Simulated scaling: what nets would do on clusters of up to thousands of hosts, under each framework of SINGA.

What layers, updates and messages cost is measured on one core of this machine; steps are simulated as ``singa-dask
plan`` does. A host has one worker, whose layers are taken to be faster by a power of its cores, `GAIN`. Sandblaster and
Downpour have a server on a host of its own for each four workers. Strong scaling divides the batch among the workers,
weak scaling gives it to each of them. The asynchronous frameworks give it to each group of one worker; their messages
are followed one by one, so that they end earlier. Nothing here has run on such a cluster.

A cell has the time of a step, samples per second, these for each host beside those of one process, and what a step
waits for most: c, layers; n, the network interface of a host; m, its thread for messages; u, updates of a server; l,
latency, as nothing is busy for half of the step.
``python -m benchmarks.scaling [--net NAME ...] [--processes N ...] [--link RATE] [--cores N] [--feature]
[--costs DIR]``
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from singa_dask.conf import ClusterConf, JobConf, Phase, load
from singa_dask.data.convert import ConvertRequest, convert
from singa_dask.inputs.text import CharRNNConf
from singa_dask.layers import Layer
from singa_dask.planner.costs import MeasuredCosts
from singa_dask.planner.failures import lost_time, state_bytes
from singa_dask.planner.links import measure_here
from singa_dask.planner.model import Costs, Link, Prediction
from singa_dask.planner.search import limit_of, partitions_of, with_dims
from singa_dask.planner.simulation import simulate
from singa_dask.planner.what_if import imagined_cluster, read_what_if
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.job_stores import with_batchsize
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.training import with_initialisers

ROOT = Path(__file__).parents[1]
LIFE_S = 10_000 * 3600.0
GAIN, N_TIMES = 0.9, 2
"""Exponent of the cores of a host, and how often costs are measured: the least counts, as other work disturbs them."""
MAX_ASYNCHRONOUS = 64
"""Worker groups that are simulated at most."""
IDLE = EFFICIENT = 0.5
"""A part of a step, and of the speed of one process."""


class Net(NamedTuple):
    """A job file, the batch, a power of two near that of the job, and the batch that its layers are measured with."""

    config: str
    batch: int
    measured: int


NETS = {
    "cifar": Net("cifar10/convnet", 128, 128),
    "alexnet": Net("alexnet/alexnet", 256, 32),
    "resnet20": Net("cifar10/resnet20", 128, 128),
    "mlp": Net("mnist/mlp", 64, 64),
    "rbm": Net("rbm/rbm1", 128, 128),
    "gru": Net("char-rnn/gru", 64, 64),
    "transformer": Net("char-rnn/transformer", 32, 32),
}
SMALL = Net("digits/mlp", 64, 64)
FRAMEWORKS: dict[str, Callable[[int], dict[str, Any]]] = {
    "AllReduce": lambda n: {"nworkers_per_group": n, "nservers_per_group": n},
    "Sandblaster": lambda n: {"nworkers_per_group": n, **_apart(n)},
    "Downpour": lambda n: {"nworker_groups": n, **_apart(n)},
    "Distributed Hogwild": lambda n: {"nworker_groups": n, "nserver_groups": n},
}


def _apart(n: int) -> dict[str, Any]:
    return {"nservers_per_group": max(n // 4, 1), "server_worker_separate": True}


def job_of(net: Net, folder: str) -> JobConf:
    """Return the training job of a net, on made-up pictures where its records are not here."""
    file = load(str(ROOT / f"configs/{net.config}.yaml"))
    raw = file.job.model_dump(mode="json", exclude_unset=True)
    raw["neuralnet"]["layer"] = [layer for layer in raw["neuralnet"]["layer"] if "test" not in layer.get("include", ())]
    for key in [key for key in raw if key.startswith(("test_", "validate_", "checkpoint_", "early_"))]:
        del raw[key]
    for layer in raw["neuralnet"]["layer"]:
        store = layer.get("store_conf", {})
        if "path" in store and not (ROOT / store["path"]).exists():
            made, random = f"{folder}/{Path(net.config).stem}", np.random.default_rng(0)
            images = random.integers(0, 256, (4 * net.measured, *store["shape"]), np.uint8)
            np.savez(f"{made}.npz", images=images, labels=random.integers(0, 10, len(images)).astype(np.int32))
            mean = f"{made}-mean.arrow" if "mean_file" in store else ""
            convert(ConvertRequest("npz", [f"{made}.npz"], f"{made}.arrow", mean=mean))
            store |= {"path": f"{made}.arrow", "backend": "arrow", "random_skip": 0}
            store |= {"mean_file": mean} if mean else {}
    job = with_batch(JobConf.model_validate({**raw, "disp_freq": 0, "train_steps": 1000}), net.measured)
    return with_initialisers(job, build_nets(job)[Phase.TRAIN])


def with_batch(job: JobConf, n: int) -> JobConf:
    """Return a job with batches of ``n`` records, or windows of a text."""
    layers = list(with_batchsize(job, n).neuralnet.layer)
    for i, layer in enumerate(layers):
        if layer.type == "CharRNN":
            layers[i] = layer.with_block(layer.block(CharRNNConf).model_copy(update={"batchsize": n}))
    return job.with_layers(layers)


class Row(NamedTuple):
    """What a simulated topology takes; ``lost`` is the part of its time that losses cost."""

    layout: Layout
    found: Prediction
    lost: float

    def efficiency(self, alone: float) -> float:
        """Return samples per second of a host by those of one process."""
        return self.found.samples_per_s / alone / len(self.layout.processes)

    def cell(self, alone: float) -> str:
        """Return a cell of the table."""
        limit = limit_of(self.found, self.layout, {1.0}) if max(self.found.busy.values()) >= IDLE else "latency"
        rate = f"{self.found.samples_per_s:,.0f}/s"
        step_ms = float(f"{1e3 * self.found.step_s:.3g}")
        return f"{step_ms:,g} ms, {rate}, {self.efficiency(alone):.0%} {limit[0]}"


class HostCosts(Costs):
    """Costs on hosts with more cores, from those of one core that were measured several times.

    What a step takes outside of layers is that of a small net: next to the layers of large ones it cannot be measured.
    """

    def __init__(self, measured: Sequence[MeasuredCosts], step_s: float) -> None:
        self._measured, self.step_s = measured, step_s
        self.pass_s = 0.0  # a host has one process, with one worker
        self.handled_s, self.woken_s, self.record_bytes = (
            min(getattr(each, name) for each in measured) for name in ("handled_s", "woken_s", "record_bytes")
        )

    def of(self, job: JobConf) -> HostCosts:
        """Return the costs of the same job with another cluster or partition."""
        return HostCosts([each.of(job) for each in self._measured], self.step_s)

    def layer_s(self, layer: Layer, verb: str, n_threads: int, n_busy: int) -> float:
        return min(each.layer_s(layer, verb, 1, 1) for each in self._measured) / n_threads**GAIN

    def update_s(self, sizes: Sequence[int], n_busy: int) -> float:
        return min(each.update_s(sizes, 1) for each in self._measured)

    def crowding(self, n_groups: int) -> float:
        return 1.0

    def copied_byte_s(self, n_busy: int) -> float:
        return min(each.copied_byte_s(1) for each in self._measured)

    def read_s(self, rows: int, n_busy: int) -> float:
        return min(each.read_s(rows, 1) for each in self._measured)


class Scaling:
    """Simulates the job of a net on hosts like this machine, but with more cores."""

    def __init__(self, job: JobConf, costs: HostCosts, links: tuple[Link, Link], what_if: str) -> None:
        self._job, self._costs, self._links, self._what_if = job, costs, links, what_if
        self.n_bytes = state_bytes(job)

    def row(self, topology: Mapping[str, Any], batch: int, dims: Mapping[int, int] | None = None) -> Row:
        """Return what a topology takes, with a batch of each worker group."""
        job = with_batch(with_dims(self._job, dims or {}), batch)
        job = job.model_copy(update={"cluster": ClusterConf.model_validate(topology)})
        plan = JobPlan.make(job)
        n = len(plan.layout.processes)
        cluster = imagined_cluster(read_what_if(f"hosts={n},{self._what_if}"), *self._links)
        found = simulate(job, plan, cluster, self._costs.of(job), n_steps=4 if n > 16 else 8)
        return Row(plan.layout, found, lost_time(job, plan.layout, self.n_bytes, found.step_s, LIFE_S))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--processes", nargs="+", type=int, default=[4**i for i in range(7)], help="numbers of workers")
    parser.add_argument("--link", default="25Gbit")
    parser.add_argument("--cores", type=int, default=16, help="of a host")
    parser.add_argument("--costs", help="where measured costs are kept for another run")
    parser.add_argument("--feature", action="store_true", help="compare partitions by records and by features, too")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    what_if = f"cores={given.cores},link={given.link},latency=30us"
    print(f"costs measured on {cpu[1] if cpu else platform.processor()}; hosts with {what_if}")
    links = best_link(shared=True), best_link(shared=False)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in given.net:
        with ExitStack() as stack:
            folder = given.costs or stack.enter_context(tempfile.TemporaryDirectory())
            os.makedirs(folder, exist_ok=True)
            small, job = job_of(SMALL, folder), job_of(NETS[name], folder)
            step_s = min(each.step_s for each in measured(small, Path(folder, "small"), stack))
            costs = HostCosts(measured(job, Path(folder, name), stack), step_s)
            scaling = Scaling(job, costs, links, what_if)
            show(name, scaling, given.processes)
            if given.feature:
                show_partitions(job, scaling, NETS[name].measured)


def best_link(shared: bool) -> Link:
    """Return the link between two processes here that takes least CPU time, of several measurements."""
    links = [measure_here(shared) for _ in range(N_TIMES)]
    return min(links, key=lambda link: link.sent_byte_s + link.received_byte_s)


def measured(job: JobConf, path: Path, stack: ExitStack) -> list[MeasuredCosts]:
    """Return costs of a job that are measured several times, and kept in files."""
    return [stack.enter_context(MeasuredCosts(job, path.with_name(f"{path.name}-{i}.json"))) for i in range(N_TIMES)]


def show(name: str, scaling: Scaling, processes: list[int]) -> None:
    """Print the table of a net."""
    _, batch, rows = NETS[name]
    if rows < batch:  # by a line through these two
        for n in (rows // 4, rows):
            scaling.row({}, n)
    row = scaling.row({}, batch)
    alone = row.found.samples_per_s
    print(f"\n{name}, batch {batch}, {scaling.n_bytes / 1e6:.3g} MB of state; one process: {row.cell(alone)}\n")
    kinds = [(each, way) for each in ("AllReduce", "Sandblaster") for way in ("strong", "weak")]
    kinds += [("Downpour", ""), ("Distributed Hogwild", "")]
    titles = [f"{each}, {way}" if way else each for each, way in kinds]
    print(f"| workers | {' | '.join(titles)} | AllReduce, weak, loses |")
    print("|---" * (len(titles) + 2) + "|")
    last = dict.fromkeys(titles, 1)
    for n in [n for n in processes if n > 1]:
        cells, lost = dict.fromkeys(titles, ""), ""
        for title, (framework, way) in zip(titles, kinds, strict=True):
            if n > (batch if way == "strong" else MAX_ASYNCHRONOUS if not way else n):
                continue
            row = scaling.row(FRAMEWORKS[framework](n), n * batch if way == "weak" else batch)
            cells[title] = row.cell(alone)
            last[title] = n if row.efficiency(alone) >= EFFICIENT else last[title]
            lost = f"{row.lost:.2%}" if title == "AllReduce, weak" else lost
        print(f"| {n:,} | {' | '.join([*cells.values(), lost])} |", flush=True)
    print(f"| {EFFICIENT:.0%} up to | {' | '.join(f'{n:,}' for n in last.values())} | |")


def show_partitions(job: JobConf, scaling: Scaling, batch: int) -> None:
    """Print the table of partitions, as far as the net has large layers that can be cut by features."""
    if "feature" not in (partitions := dict(partitions_of(job, build_nets(job)[Phase.TRAIN]))):
        return
    print(f"\nbatch {batch}\n\n| workers | all by records | large layers by features |\n|---|---|---|")
    alone = scaling.row({}, batch).found.samples_per_s
    for n in (2, 4, 8):
        rows = [scaling.row(FRAMEWORKS["AllReduce"](n), batch, partitions[each]) for each in ("", "feature")]
        print(f"| {n} | {' | '.join(row.cell(alone) for row in rows)} |", flush=True)


if __name__ == "__main__":
    main()
