"""Costs: measure on demand how long the work of a job takes on this machine, and store it in a file.

Layers are timed in whole training steps of their net, so that caches are as warm as in a job. The steps use random
records and no servers. Times for other batch sizes are interpolated.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from singa_dask.comm.message import Address, Message
from singa_dask.comm.slices import ParamSlice
from singa_dask.conf import ClusterConf, JobConf, Phase
from singa_dask.conf.updater import LRGenConf
from singa_dask.errors import ConfigError
from singa_dask.inputs import StoreInput
from singa_dask.layers import Layer
from singa_dask.layers.bridge import Bridge
from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import ArrayList
from singa_dask.planner.cost_table import CostTable, Times, cost_file, hash_of, layer_key
from singa_dask.planner.links import measure_here, woken_s
from singa_dask.planner.loop import Loop, median_s
from singa_dask.planner.model import Cluster, Costs, Link, Machine
from singa_dask.planner.neighbours import Neighbours
from singa_dask.planner.reading import measure_reading, with_any_scaling
from singa_dask.planner.simulation import simulate
from singa_dask.runtime.job.client.job_cluster import embedded_cluster
from singa_dask.runtime.job.driver.driver import Driver
from singa_dask.runtime.job.driver.job_run import JobRun
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.job_stores import with_batchsize
from singa_dask.runtime.planning.machine import cpu_count, machine_memory
from singa_dask.runtime.planning.nets import build_net
from singa_dask.runtime.planning.thread_limits import limit_process, limit_thread
from singa_dask.runtime.units.server import Server
from singa_dask.training import UPDATERS, with_initialisers

logger = logging.getLogger(__name__)

NOWHERE = Link(0.0, 1.0)
"""Link of a cluster with one process."""
PARTS, ROUNDS = (1, 2, 4, 16), 3
"""Layers are timed for the batch size divided by each of `PARTS`. There are `ROUNDS` rounds, each with newly allocated
memory."""
RUN_S, RUN_STEPS = 2.0, (5, 60)
"""For the run that measures the time outside of layers: its duration in seconds, and its (minimum, maximum) number of
steps."""
TINY, MANY, MAX_VALUES = 64, 16, 1 << 23
"""Updates are timed for one slice of `TINY` values, for `MANY` such slices, and for one slice with all params, but at
most `MAX_VALUES` values."""
PLAIN: dict[str, Any] = {
    "cluster": ClusterConf(), "epochs": None, "train_steps": 1, "test_freq": 0, "validate_freq": 0, "disp_freq": 0,
    "checkpoint_freq": 0, "checkpoint_minutes": 0.0, "keep_checkpoints": None, "early_stopping": None, "metrics": [],
    "checkpoint_path": [], "tensorboard": False, "mlflow": "", "debug": False, "profile": None,
}  # fmt: skip
"""Values for the keys of a job that cause other work than training steps. Timed jobs get these values."""

# the rate does not affect times, and some schedules need a number of steps
RATE = LRGenConf(type="Fixed", base_lr=1e-5)


def _plain(job: JobConf) -> JobConf:
    """Return the job with training steps only, at a fixed rate."""
    return job.model_copy(update={**PLAIN, "updater": job.updater.model_copy(update={"learning_rate": RATE})})


def _added_byte_s() -> float:
    x, y = np.zeros((2, 1 << 22), np.float32)
    return median_s(lambda: np.add(x, y, out=x)) / x.nbytes


class MeasuredCosts(Costs):
    """Costs of a job on this machine. All params of the job must have initialisers.

    Use the object as a context manager. Entering the context trains the job for some steps, to measure costs that are
    not yet in the file. Layers are measured on demand. Leaving the context stores all costs in a file.
    """

    def __init__(self, job: JobConf, file: Path | None = None) -> None:
        self._job = self._variant = plain = _plain(job)
        self._n_cores, self.table = cpu_count(), CostTable(file or cost_file())
        net = build_net(plain, Phase.TRAIN)
        self._ops, self._dtype = net.ops.name, net.context.param_dtype
        self._n_values = max(min(sum(owner.size for owner in net.owners), MAX_VALUES), 2 * TINY)
        self._batch = max((layer.plan.batch_size for layer in net.inputs if isinstance(layer, StoreInput)), default=0)
        fitting = machine_memory() // (2 * max(net.memory_bytes(), 1))
        self._neighbours = Neighbours(plain, min(self._n_cores - 1, fitting))
        self._measured: set[tuple[int | None, ...]] = set()
        self._keys: WeakKeyDictionary[Layer, tuple[str, int]] = WeakKeyDictionary()
        self._updater = f"update {hash_of(plain.updater.model_dump_json())}, {self._dtype}"
        self._job_hash = hash_of(json.dumps(plain.model_dump(mode="json", exclude={"name", "cluster"})))
        self._record = f"record {self._job_hash}"

    def __enter__(self) -> MeasuredCosts:
        job, job_hash = self._job, self._job_hash
        self.handled_s = self._once(f"handled {self._updater}", self._measure_handled, False)[0]
        self.woken_s = self._once("woken", woken_s, False)[0]
        self.pass_s = self._once(f"pass {job_hash}", self._measure_pass, False)[0] if self._n_cores > 1 else 0.0
        self.record_bytes = self._once(f"bytes of a {self._record}", lambda: measure_reading(job)[1], False)[0]
        self.step_s = self._once(f"step {job_hash}", self._measure_step, False)[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._neighbours.close()
        self.table.save()

    def of(self, job: JobConf) -> MeasuredCosts:
        """Return the costs of the same job with another cluster, or another partition of its layers."""
        costs = copy.copy(self)
        costs._variant = _plain(job)
        return costs

    def _once(self, key: str, measure: Callable[[], float], beside: bool = True) -> Times:
        """Return the times of a key; measure them if the table lacks the key.

        ``measure`` returns seconds. With ``beside``, ``measure`` is called a second time while all other cores are
        busy.
        """
        if (times := self.table.get(key)) is None:
            alone = measure()
            times = alone, alone
            if beside and self._n_cores > 1:
                with self._neighbours.busy():
                    times = alone, max(measure(), alone)
            self.table.add(key, times)
        return times

    def _at(self, times: Times, n_threads: int, n_busy: int) -> float:
        """Return the time of work by ``n_threads`` threads while ``n_busy`` cores, with these, are busy.

        The result is interpolated between the two ``times``. ``n_busy`` is limited to the cores of this machine.
        """
        share = min(max(n_busy - n_threads, 0) / max(self._n_cores - n_threads, 1), 1.0)
        return times[0] + share * (times[1] - times[0])

    def link(self, shared: bool) -> Link:
        """Return the measured link between two processes here, with or without shared memory for arrays."""
        keys = [f"link {field.name}{', shared memory' * shared}" for field in fields(Link)]
        if any(self.table.get(key) is None for key in keys):
            for key, value in zip(keys, astuple(measure_here(shared)), strict=True):
                self.table.add(key, (value, value))
        return Link(*(times[0] for key in keys if (times := self.table.get(key))))

    def layer_s(self, layer: Layer, verb: str, n_threads: int, n_busy: int) -> float:
        """Return the time of a pass of a layer; see `Costs`.

        Bridges take no time, because they only send messages. For more threads than this machine has cores, the time is
        extrapolated from the times with one thread and with all cores.
        """
        if isinstance(layer, Bridge) or (verb == "backward" and not layer.learns):
            return 0.0
        here = min(n_threads, self._n_cores)
        times = self._times_of(layer, verb, here)
        seconds = self._at(times, here, n_busy)
        if n_threads > here > 1:
            gain = np.log(self._times_of(layer, verb, 1)[0] / times[0]) / np.log(here)
            seconds *= (here / n_threads) ** min(max(float(gain), 0.0), 1.0)
        return seconds

    def _times_of(self, layer: Layer, verb: str, n_threads: int) -> Times:
        if layer not in self._keys:
            self._keys[layer] = layer_key(layer)
        name, rows = self._keys[layer]
        # First measure nets of a single worker. If a net is partitioned only by records, its layers have the same
        # shapes as the layers of a single worker with a smaller batch.
        for n_workers, worker, part in (
            *((1, 0, part) for part in PARTS),
            (layer.context.n_workers, layer.context.worker, 1),
        ):
            if part == 1 and (times := self.table.get(self._key(name, verb, n_threads), rows)):
                return times
            self._measure_net(n_workers, worker, part, n_threads)
        times = self.table.get(self._key(name, verb, n_threads), rows)
        assert times is not None, f"layer {layer.name!r} is in no net of this job"
        return times

    def _key(self, name: str, verb: str, n_threads: int) -> str:
        return f"{name} {verb}, {self._ops}, {n_threads} threads"

    def _measure_net(self, n_workers: int, worker: int, part: int, n_threads: int) -> None:
        """Measure the layers of one worker of a group, for the batch divided by ``part``."""
        # the net of a single worker is not partitioned
        dims = [layer.partition_dim for layer in self._variant.neuralnet.layer if n_workers > 1]
        if (what := (n_workers, worker, part, n_threads, *dims)) in self._measured:
            return
        self._measured.add(what)
        job = self._variant.model_copy(update={"cluster": ClusterConf(nworkers_per_group=n_workers)})
        if part > 1:
            job = with_batchsize(job, max(self._batch // part, 1))
        rounds = defaultdict[tuple[str, int], list[Times]](list)
        for _ in range(ROUNDS):
            loop = Loop(job, worker)
            alone = beside = loop.measure(n_threads)[0]
            if n_threads < self._n_cores:
                with self._neighbours.busy():
                    beside = loop.measure(n_threads)[0]
            for (layer, verb), seconds in alone.items():
                name, rows = layer_key(layer)
                rounds[self._key(name, verb, n_threads), rows].append((seconds, beside[layer, verb]))
        for (key, rows), times in rounds.items():
            seconds, together = np.min(times, axis=0).tolist()  # the least disturbed round has the shortest times
            self.table.add(key, (seconds, max(together, seconds)), rows)
        self.table.save()  # save now, so that an interrupted plan can continue from here

    def update_s(self, sizes: Sequence[int], n_busy: int) -> float:
        one, many, large = (
            self._at(self._once(f"{self._updater}, {n} x {size}", partial(self._measure_update, n, size)), 1, n_busy)
            for n, size in ((1, TINY), (MANY, TINY), (1, self._n_values))
        )
        of_slice, of_value = max(many - one, 0.0) / (MANY - 1), max(large - one, 0.0) / (self._n_values - TINY)
        n_more = max(sum(sizes) - TINY * len(sizes), 0)
        return one + of_slice * (len(sizes) - 1) + of_value * n_more if sizes else 0.0

    def copied_byte_s(self, n_busy: int) -> float:
        return self._at(self._once("add", _added_byte_s), 1, n_busy)

    def read_s(self, rows: int, n_busy: int) -> float:
        return rows * self._at(self._once(self._record, lambda: measure_reading(self._job, warns=False)[0]), 1, n_busy)

    def _measure_update(self, n: int, size: int, is_cold: bool = True) -> float:
        updater = UPDATERS.find(self._job.updater.type)(self._job.updater)
        value, grad, *state = (
            ArrayList(np.full((n, size), 1e-3, self._dtype)) for _ in range(2 + len(updater.state_names))
        )
        named = dict(zip(updater.state_names, state, strict=True))
        update = partial(updater.update, 0, 0, value, grad, named)
        if not is_cold:
            return median_s(update)
        with limit_process(1), limit_thread(1):
            return median_s(update, self._loop.step)

    @cached_property
    def _loop(self) -> Loop:
        """Training steps to run between timed updates, so that caches are as cold as in a job."""
        return Loop(self._job)

    def _measure_handled(self) -> float:
        """Return the time in which a server handles a message with a gradient, without the time of the update."""
        slices = [ParamSlice(i, i, 0, 1, 0, 0) for i in range(MANY)]
        values, facts = np.zeros((MANY, 1), self._dtype), ([(1.0, 1.0)] * MANY, [1] * MANY)
        updater, address = self._job.updater.model_copy(update={"clip_norm": 0.0}), Address.server(0, 0)
        server = Server(address, slices, values.__getitem__, *facts, updater, ClusterConf(), NumpyOps())
        info = {"group": 0, "node": 0, "n": 1, "total": 1, "in_place": True}
        steps = iter(range(1 << 30))

        def handle(kind: str = "update") -> None:
            step = next(steps)
            for i in range(MANY):
                about: dict[str, Any] = {"param": i, "slice": i, "version": step, "step": step, "info": info}
                server.handle(Message(kind, Address.worker(0, 0), address, **about, arrays=(values[i],)))

        handle("put")
        return max(median_s(handle) / MANY - self._measure_update(1, 1, is_cold=False), 0.0)

    def _measure_pass(self) -> float:
        """Return the additional time of a pass of a layer while another thread of the process computes.

        The difference is relative to a pass while a thread of another process computes.
        """
        job = self._job.model_copy(update={"threads": 1})
        loop, other, is_over = Loop(job), Loop(job), threading.Event()

        def run() -> None:
            with limit_process(1), limit_thread(1):
                while not is_over.is_set():
                    other.step()

        with self._neighbours.busy():
            passes, _, apart_s = loop.measure(1)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            _, _, together_s = loop.measure(1)
        finally:
            is_over.set()
            thread.join()
        return max(together_s - apart_s, 0.0) / len(passes)

    def _measure_step(self) -> float:
        """Return the time of a step outside of layers and messages, which is not simulated, for one thread.

        This time is the measured time of a step minus the simulated time. If this machine cannot read the job's
        records, the result is the time that a `Loop` spends outside of layers.
        """
        job = self._job.model_copy(update={"threads": 1})
        loop = Loop(job)
        if found := self._compare(job, loop, NOWHERE, step_s=0.0):
            return max(found[0] - found[1], 0.0)
        _, inside_s, step_s = loop.measure(1)
        return step_s - inside_s

    def crowding(self, n_groups: int) -> float:
        """Return the ratio of measured to simulated time of a step, for two processes on all cores."""
        more = {"nworkers_per_group": 2, "nservers_per_group": 2}
        if n_groups > 1:
            more = {"nworker_groups": 2, "nserver_groups": 2, "sync_freq": 1}
        measure = partial(self._measure_crowding, ClusterConf.model_validate(more))
        return self._once(f"crowding, {self._job_hash}, {'groups' if n_groups > 1 else 'one group'}", measure, False)[0]

    def _measure_crowding(self, conf: ClusterConf) -> float:
        job, found = self._job.model_copy(update={"cluster": conf}), None
        if self._n_cores > 1 and not [*job.rules()]:
            with contextlib.suppress(ConfigError):  # for example, the batch cannot be divided
                found = self._compare(job, Loop(self._job), self.link(job.cluster.listen.shared_memory))
        return max(found[0] / found[1], 1.0) if found else 1.0

    def _compare(self, job: JobConf, loop: Loop, link: Link, **facts: Any) -> tuple[float, float] | None:
        """Return the measured time of a step in the fastest of several runs, and the simulated time.

        Return None if a run fails. ``facts`` are costs that the simulation uses instead of measured costs.
        """
        plan, (passes, _, step_s) = JobPlan.make(job), loop.measure(1)
        n_steps = int(np.clip(RUN_S / step_s, *RUN_STEPS))
        job = with_initialisers(job.model_copy(update={"train_steps": n_steps}), loop.net)
        runs_s, layers_s = [], [sum(passes.values())]
        with tempfile.TemporaryDirectory() as folder, embedded_cluster(plan.layout) as client:
            for i in range(ROUNDS):
                run = JobRun.of(with_any_scaling(job), run_url=os.path.join(folder, f"run-{i}"), job_id=f"plan-{i}")
                result = Driver(run, client, on_event=lambda event: None).run()
                if result.state != "done":
                    return None
                runs_s.append(result.step_ms["median"] / 1e3)
                layers_s.append(sum(loop.measure(1)[0].values()))
        # layers were timed again between the runs, because the speed of the machine may have changed
        scale = min(layers_s) / sum(self.layer_s(layer, verb, 1, 1) for layer, verb in passes)
        scaled = copy.copy(self)
        vars(scaled).update(layer_s=lambda *pass_: scale * self.layer_s(*pass_), crowding=lambda n: 1.0, **facts)
        here = Cluster((Machine("here", self._n_cores),), (0,) * len(plan.layout.processes), link, link)
        return min(runs_s), simulate(job, plan, here, scaled).step_s
