"""Costs: what the work of a job takes on this machine, measured once and kept in a file.

Layers are timed in whole training steps of their net, with made-up records and without servers, so that caches are as
warm as they are in a job. Nets with other batches are interpolated between three sizes.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import logging
import os
import platform
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from singa_dask import fs
from singa_dask.api import REGISTRIES
from singa_dask.comm.message import Address, Message
from singa_dask.comm.stub import ParamSlice
from singa_dask.conf import ClusterConf, JobConf, Phase, loads
from singa_dask.conf.yaml_text import dump
from singa_dask.layers import Feature, Layer, StoreInput
from singa_dask.layers.connection import Bridge
from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import ArrayList
from singa_dask.planner.model import Costs
from singa_dask.planner.reading import measure_reading
from singa_dask.runtime.job.cluster import embedded_cluster
from singa_dask.runtime.job.driver import Driver
from singa_dask.runtime.planning.loop import Loop, median_s
from singa_dask.runtime.planning.nets import build_net, with_batchsize
from singa_dask.runtime.planning.placement import cpu_count, limit_process, limit_thread, machine_memory, plan_processes
from singa_dask.runtime.units.server import Server
from singa_dask.training import UPDATERS, with_initialisers
from singa_dask.version import __version__

logger = logging.getLogger(__name__)

SIZES = (1, 4, 16)
"""Parts of the batch whose layers are timed."""
RUN_S, RUN_STEPS = 2.0, (5, 60)
"""Time, and fewest and most steps, of the run that shows what a step takes outside of layers."""
TINY, MANY, MAX_VALUES = 64, 16, 1 << 23
"""Slices of an update that is timed: one tiny one, many tiny ones, and one of all params up to so many values."""
UNTRAINED: dict[str, Any] = {
    "epochs": None, "test_freq": 0, "validate_freq": 0, "disp_freq": 0, "checkpoint_freq": 0, "checkpoint_minutes": 0.0,
    "keep_checkpoints": None, "early_stopping": None, "metrics": [], "checkpoint_path": [], "tensorboard": False,
    "mlflow": "", "debug": False, "profile": None,
}  # fmt: skip
"""Keys of a job without which its steps are timed."""


def cost_file() -> Path:
    """Return the file with the times of this machine, for this version of the package."""
    cache = os.environ.get("SINGA_DASK_CACHE") or os.path.join("~", ".cache", "singa-dask")
    with contextlib.suppress(OSError):
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    model = next(iter(names), "") or platform.processor() or platform.machine()
    name = re.sub(r"[^\w.]+", "-", f"{model} {cpu_count()} cores {__version__}.json")
    return Path(os.path.expanduser(f"{cache}-costs"), name)


Times = tuple[float, float]
"""Seconds alone, and with all cores busy."""


class CostTable:
    """Times by key and size, in a file. A file that cannot be read is as good as none.

    Parameters
    ----------
    file : Path
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._times = self._read()

    def _read(self) -> dict[str, dict[int, Times]]:
        try:
            stored = json.loads(self.file.read_text())
            return {
                key: {int(size): (float(alone), float(beside)) for size, (alone, beside) in sizes.items()}
                for key, sizes in stored.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            logger.warning("%s: measured costs cannot be read, and are measured again: %s", self.file, error)
            return {}

    def save(self) -> None:
        """Write the file, with what others have written there meanwhile."""
        times = self._read()
        for key, sizes in self._times.items():
            times[key] = {**times.get(key, {}), **sizes}
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            fs.write_atomic(str(self.file), json.dumps(times).encode())
        except OSError as error:
            logger.warning("%s: measured costs cannot be kept: %s", self.file, error)

    def add(self, key: str, size: int, times: Times) -> None:
        """Keep the times of a key at a size."""
        self._times.setdefault(key, {})[size] = times

    def get(self, key: str, size: int) -> Times | None:
        """Return times, between two sizes and beyond them those of a line; None if less than two are known."""
        known = self._times.get(key, {})
        if size in known or len(known) < 2:
            return known.get(size)
        above = sorted(known)
        i = min(max(int(np.searchsorted(above, size)), 1), len(above) - 1)
        low, high = above[i - 1], above[i]
        part = (size - low) / (high - low)
        # a line through two measured points may fall below zero
        least = min(size / low, 1.0)
        alone, beside = (max(a + part * (b - a), least * a) for a, b in zip(known[low], known[high], strict=True))
        return alone, beside


def layer_key(layer: Layer) -> tuple[str, int]:
    """Return what decides the time of a layer beside its kernels and the number of its rows, and that number."""
    features = [*layer.sources, *layer.features]
    rows = max([feature.shape[0] for feature in layer.features or layer.sources], default=1)
    conf = layer.conf.model_dump(mode="json", exclude={"name", "srclayers", "param", "include", "exclude"})
    for block in conf.values():
        for key in ("path", "batchsize") if isinstance(block, dict) else ():
            block.pop(key, None)
    told = [conf, layer.learns, [_facts(feature, rows) for feature in features]]
    text = json.dumps([*told, [[param.shape, str(param.dtype)] for param in layer.params]], sort_keys=True)
    return f"{layer.conf.type} {_hash(text)}", rows


def _facts(feature: Feature, rows: int) -> list[Any]:
    of_feature = [feature.shape[0] / rows, feature.shape[1:], str(feature.dtype), feature.requires_grad]
    return [*of_feature, feature.relu, feature.n_steps, sorted(feature.consumed_as)]


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def keep_busy() -> None:
    """Compute the job in the file that the command line names, from each ``g`` on stdin until the next byte."""
    loop = Loop(loads(Path(sys.argv[1]).read_text(), sys.argv[1], registries=REGISTRIES, with_lines=False).job)
    with limit_process(1), limit_thread(1):
        loop.step()
        os.write(1, b"r")
        while os.read(0, 1) == b"g":
            os.write(1, b"b")
            while not select.select([0], [], [], 0)[0]:
                loop.step()
            os.read(0, 1)
            os.write(1, b"r")


class Neighbours:
    """Processes that compute a job on the other cores while something is measured beside them.

    Parameters
    ----------
    job : JobConf
    n : int
    """

    def __init__(self, job: JobConf, n: int) -> None:
        self._job, self._n = job, n
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stack = contextlib.ExitStack()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Keep all of them busy until the context ends; they are started for the first one."""
        if self._n and not self._processes:
            self._start()
        self._tell(b"g")
        try:
            yield
        finally:
            self._tell(b".")

    def _start(self) -> None:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        file = Path(folder, "job.yaml")
        file.write_text(dump(self._job.model_dump(mode="json", exclude_unset=True)))
        command = [sys.executable, "-c", "from singa_dask.planner.costs import keep_busy; keep_busy()", str(file)]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "bufsize": 0}
        for _ in range(self._n):
            process = subprocess.Popen(command, **pipes)
            self._processes.append(self._stack.enter_context(process))
            assert process.stdin is not None
            self._stack.callback(process.stdin.close)
        self._answers()

    def _tell(self, byte: bytes) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(byte)
        self._answers()

    def _answers(self) -> None:
        for process in list(self._processes):
            assert process.stdout is not None
            if not process.stdout.read(1):
                logger.warning("a process that keeps a core busy has ended: costs are measured with fewer beside")
                self._processes.remove(process)

    def close(self) -> None:
        """End them."""
        self._processes.clear()
        self._stack.close()


class MeasuredCosts(Costs):
    """Costs of a job on this machine. Close it to keep them.

    Parameters
    ----------
    job : JobConf
        With initialisers, computed on CPUs.
    file : Path, optional
        Where costs are kept, by default `cost_file`.

    Attributes
    ----------
    step_s, handled_s, woken_s, record_bytes : float
        See `Costs`.
    """

    def __init__(self, job: JobConf, file: Path | None = None) -> None:
        plain = job.model_copy(update={**UNTRAINED, "train_steps": 1, "cluster": ClusterConf()})
        self.job = self._variant = plain
        self.n_cores = cpu_count()
        self.table = CostTable(file or cost_file())
        net = build_net(plain, Phase.TRAIN)
        self._ops = net.ops.name
        self._n_values = sum(owner.size for owner in net.owners)
        self._dtype = net.context.param_dtype
        self._batch = max((layer.batch_size for layer in net.inputs if isinstance(layer, StoreInput)), default=0)
        fitting = machine_memory() // (2 * max(net.memory_bytes(), 1))
        self.neighbours = Neighbours(plain, min(self.n_cores - 1, fitting))
        self._measured: set[tuple[int, int, int, int]] = set()
        self._keys: WeakKeyDictionary[Layer, tuple[str, int]] = WeakKeyDictionary()
        self._updater = f"update {_hash(plain.updater.model_dump_json())} {self._dtype}"
        job_key = _hash(plain.model_dump_json(exclude={"name", "cluster"}))
        self.handled_s = self._once(f"handled {self._updater}", self._measure_handled)[0]
        self.woken_s = self._once("woken", _woken_s)[0]
        self.step_s = self._once(f"step {job_key}", self._measure_step)[0]
        self._record = f"record {job_key}"
        self.record_bytes = self._once(f"bytes of a {self._record}", lambda: measure_reading(plain)[1])[0]

    def __enter__(self) -> MeasuredCosts:
        return self

    def __exit__(self, *_: object) -> None:
        self.neighbours.close()
        self.table.save()

    def of(self, job: JobConf) -> MeasuredCosts:
        """Return the costs of the same job with another cluster or partition of its layers."""
        costs = copy.copy(self)
        costs._variant = job.model_copy(update={**UNTRAINED, "train_steps": 1})
        costs._measured = set()
        return costs

    def _once(self, key: str, measure: Callable[[], float], beside: bool = False) -> Times:
        """Return the times of a call that measures something, of an earlier one if there was one."""
        times = self.table.get(key, 1)
        if times is None:
            alone = measure()
            times = alone, alone
            if beside and self.n_cores > 1:
                with self.neighbours.busy():
                    times = alone, max(measure(), alone)
            self.table.add(key, 1, times)
        return times

    # -- layers ------------------------------------------------------------------------------------------------

    def layer_s(self, layer: Layer, verb: str, n_threads: int, n_busy: int) -> float:
        """Return the time of a verb of a layer, see `Costs`; what a bridge takes are messages.

        With more threads than this machine has cores, it falls as it does from one thread to that many. With more busy
        cores than that, it is that of all cores of this machine.
        """
        if isinstance(layer, Bridge) or (verb == "backward" and not layer.learns):
            return 0.0
        here = min(n_threads, self.n_cores)
        alone, beside = self._times_of(layer, verb, here)
        share = min(max(n_busy - here, 0) / max(self.n_cores - here, 1), 1.0)
        seconds = alone + share * (beside - alone)
        if n_threads > here > 1:
            gain = np.log(self._times_of(layer, verb, 1)[0] / alone) / np.log(here)
            seconds *= float((here / n_threads) ** np.clip(gain, 0.0, 1.0))
        return seconds

    def _times_of(self, layer: Layer, verb: str, n_threads: int) -> Times:
        if layer not in self._keys:
            self._keys[layer] = layer_key(layer)
        name, rows = self._keys[layer]
        key = self._key(name, verb, n_threads)
        of = layer.context
        nets = [(1, 0, size) for size in SIZES] + [(of.n_workers, of.worker, 1)]
        for n_workers, worker, part in nets:
            if n_workers == 1 and part == 1 and (times := self.table.get(key, rows)):
                return times
            self._measure_net(n_workers, worker, part, n_threads)
        if (times := self.table.get(key, rows)) is None:
            raise RuntimeError(f"layer {layer.name!r} is not one of the nets that were measured")
        return times

    def _measure_net(self, n_workers: int, worker: int, part: int, n_threads: int) -> None:
        """Measure the layers of a worker of a group, with a part of the batch."""
        if (what := (n_workers, worker, part, n_threads)) in self._measured:
            return
        self._measured.add(what)
        job = self._variant.model_copy(update={"cluster": ClusterConf(nworkers_per_group=n_workers)})
        if part > 1:
            job = with_batchsize(job, max(self._batch // part, 1))
        loop = Loop(job, worker)
        alone, *_ = loop.measure(n_threads)
        beside: Mapping[tuple[Layer, str], float] = alone
        if n_threads < self.n_cores:
            with self.neighbours.busy():
                beside, *_ = loop.measure(n_threads)
        for (layer, verb), seconds in alone.items():
            name, rows = layer_key(layer)
            self.table.add(self._key(name, verb, n_threads), rows, (seconds, max(beside[layer, verb], seconds)))

    def _key(self, name: str, verb: str, n_threads: int) -> str:
        return f"{name} {verb}, {self._ops}, {n_threads} threads"

    # -- the rest of a step ------------------------------------------------------------------------------------

    def update_s(self, sizes: Sequence[int], n_busy: int) -> float:
        """Return the time in which a server updates slices of so many values, in one call."""
        if not sizes:
            return 0.0
        most = max(min(self._n_values, MAX_VALUES), 2 * TINY)
        one, many, large = (
            self._at(self._once(f"{self._updater} {n} x {size}", partial(self._measure_update, n, size), True), n_busy)
            for n, size in ((1, TINY), (MANY, TINY), (1, most))
        )
        of_slice, of_value = max(many - one, 0.0) / (MANY - 1), max(large - one, 0.0) / (most - TINY)
        return one + of_slice * (len(sizes) - 1) + of_value * max(sum(sizes) - TINY * len(sizes), 0)

    def copied_byte_s(self, n_busy: int) -> float:
        """Return the time to copy or add up a byte of arrays."""
        return self._at(self._once("add", _added_byte_s, beside=True), n_busy)

    def read_s(self, rows: int, n_busy: int) -> float:
        return rows * self._at(self._once(self._record, lambda: measure_reading(self.job)[0], beside=True), n_busy)

    def _at(self, times: Times, n_busy: int) -> float:
        share = min(max(n_busy - 1, 0) / max(self.n_cores - 1, 1), 1.0)
        return times[0] + share * (times[1] - times[0])

    def _measure_update(self, n: int, size: int) -> float:
        updater = UPDATERS.find(self.job.updater.type)(self.job.updater)
        value, grad = ([np.full(size, 1e-3, self._dtype) for _ in range(n)] for _ in range(2))
        state = {name: ArrayList([np.zeros(size, self._dtype) for _ in range(n)]) for name in updater.state_names}
        lists = ArrayList(value), ArrayList(grad)
        return median_s(lambda: updater.update(0, 0, *lists, state))

    def _measure_handled(self) -> float:
        """Return the time in which a server takes a message with a gradient, apart from the update."""
        values, server = [np.zeros(1, self._dtype) for _ in range(MANY)], Address.server(0, 0)
        slices = [ParamSlice(i, i, 0, 1, 0, 0) for i in range(MANY)]
        updater = self.job.updater.model_copy(update={"clip_norm": 0.0})
        scales = [(1.0, 1.0)] * MANY
        unit = Server(server, slices, values.__getitem__, scales, [1] * MANY, updater, ClusterConf(), NumpyOps())
        info = {"group": 0, "node": 0, "n": 1, "total": 1, "in_place": True}
        step = 0

        def handle(kind: str = "update") -> None:
            nonlocal step
            for i in range(MANY):
                about: dict[str, Any] = {"param": i, "slice": i, "version": step, "step": step}
                unit.handle(Message(kind, Address.worker(0, 0), server, **about, info=info, arrays=(values[i],)))
            step += 1

        handle("put")
        return max(median_s(handle) / MANY - self._measure_update(1, 1), 0.0)

    def _measure_step(self) -> float:
        """Return the time of a step of a run in this process outside of layers and updates.

        Where the records cannot be read from here, it is that of the loop alone.
        """
        loop = Loop(self.job)
        _, inside, total = loop.measure(self.n_cores)
        n_steps = int(np.clip(RUN_S / total, *RUN_STEPS))
        job = with_initialisers(self.job.model_copy(update={"train_steps": n_steps}), loop.net)
        updates = self.update_s([min(self._n_values, MAX_VALUES)], 1)
        with tempfile.TemporaryDirectory() as folder, embedded_cluster(plan_processes(job.cluster)) as client:
            url = f"{folder}/run"
            result = Driver(job, client, run_url=url, on_event=lambda event: None, job_id="plan").run()
        if result.state == "done":
            total = max((result.step_ms["median"] - result.wait_ms["data"]) / 1e3 - updates, total)
        return total - inside


def _woken_s() -> float:
    """Return the time until a thread goes on that waits for another."""
    n, there, back = 200, threading.Semaphore(0), threading.Semaphore(0)

    def answer() -> None:
        for _ in range(n):
            there.acquire()
            back.release()

    thread = threading.Thread(target=answer)
    thread.start()
    started = time.perf_counter()
    for _ in range(n):
        there.release()
        back.acquire()
    seconds = time.perf_counter() - started
    thread.join()
    return seconds / (2 * n)


def _added_byte_s() -> float:
    total, more = np.zeros(1 << 22, np.float32), np.ones(1 << 22, np.float32)
    return median_s(lambda: np.add(total, more, out=total)) / total.nbytes
