"""Worker: trains one replica, or its share of one, step by step; after SINGA's src/worker.cc.

A worker knows nets, steps and messages. It opens no socket: what it says goes through ``post``, what it
is told comes in through ``inbox``, what people should see goes to ``emit``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

import numpy as np

from singa_dask.comm import Address, Message
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import Aborted, CheckpointError
from singa_dask.layers import Layer, StoreInput
from singa_dask.net import NeuralNet
from singa_dask.runtime.clock import StepClock
from singa_dask.runtime.debug import log_layers
from singa_dask.runtime.pace import Pace
from singa_dask.runtime.plan import JobPlan
from singa_dask.runtime.snapshot import Snapshots, describe_params
from singa_dask.runtime.start import Start
from singa_dask.runtime.worker_params import WorkerParams
from singa_dask.train import ALGORITHMS, SCHEDULES

__all__ = ["Worker"]

PHASE_NAMES = {Phase.TRAIN: "train", Phase.VALIDATION: "validation", Phase.TEST: "test"}


class Worker:
    """One worker of a worker group.

    Parameters
    ----------
    address : Address
    job : JobConf
    plan : JobPlan
    nets : mapping of Phase to NeuralNet
        With memory: what `build_nets` returned, allocated.
    start : Start
        Step, values and cursors to begin with.
    checkpoint_url : str
        Directory that ``step-<n>`` directories go to.
    params : WorkerParams
        Of the training net.
    post : callable
        Delivers a message.
    inbox : SimpleQueue of Message
    emit : callable
        Takes an event, a dict.

    Attributes
    ----------
    step : int
        Current training step.
    bad_records : int
        Records that batches wanted and could not have so far, each once for every input layer.
    pace : Pace
        Its ``progress`` has step and cursors at the start of the current step.
    stop_at : int
        Step at which the whole group stops early; -1 if it does not.
    stop_requested : bool
        Set from outside on the first worker of a group.
    """

    def __init__(
        self,
        address: Address,
        job: JobConf,
        plan: JobPlan,
        nets: Mapping[Phase, NeuralNet],
        start: Start,
        checkpoint_url: str,
        params: WorkerParams,
        post: Callable[[Message], None],
        inbox: SimpleQueue[Message],
        emit: Callable[[dict[str, Any]], None],
    ) -> None:
        self.address = address
        self.job = job
        self.plan = plan
        self.nets = nets
        self.net = nets[Phase.TRAIN]
        self.start = start
        self.step = start.step_of(address.group)
        self.bad_records = 0
        self.stop_at = -1
        self.stop_requested = False
        self._post = post
        self._inbox = inbox
        self._emit = emit
        self._params = params
        self._inputs = [layer for net in nets.values() for layer in net.layers if isinstance(layer, StoreInput)]
        reader = next(layer for layer in self.net.all_layers if layer.is_input)
        self._n_rows = round(reader.features[0].shape[0] * reader.n_row_parts / self.net.context.weight)
        cluster = job.cluster
        self._n_workers = cluster.nworkers_per_group
        # whose params and records the first worker may not have
        self._others = range(1, cluster.nworkers_per_group) if self.net.is_partitioned else range(0)
        n_tellers = 1 + len(self._others)
        self._snapshots = Snapshots(checkpoint_url, cluster.nservers_per_group, cluster.nworker_groups, n_tellers)
        self._told: list[Message] = []
        self.pace = Pace(self.net)
        self._clock = StepClock(self.net.ops)
        rate = job.updater.learning_rate
        self._learning_rate = SCHEDULES.find(rate.type)(rate)
        self._shown = (self.step, time.perf_counter(), 0.0, 0.0)
        conf = job.train_one_batch
        algorithm = ALGORITHMS.find(conf.alg)
        self._algorithms = {phase: algorithm(net, params.collect, params.update, conf) for phase, net in nets.items()}
        self._running = self._algorithms[Phase.TRAIN]
        if not params.leave_the_device:
            self._running.repeat_steps()
        self.pace.tell(self._where())

    @property
    def layer(self) -> Layer | None:
        """The layer being computed: where an error happened."""
        return self._running.layer

    # -- the life of a worker ----------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Train to the end, or to a stop; return what the summary of the job needs.

        Raises
        ------
        Aborted
            Another unit failed.
        """
        self._say("hello", Address.stub(0))
        self._read_ahead()
        self._hear("start")
        self._params.begin(self.start)
        for layer in self._readers():
            layer.wait_for_records()
        self._say("ready", Address.stub(0))
        self._hear("go")
        started = time.perf_counter()
        self._shown = (self.step, started, 0.0, 0.0)
        while self.step < self.job.train_steps and not self._stopping():
            self.pace.tell(self._where())
            self._rest()
            self.pace.step()
            self._train_step()
            self.step += 1
        self.pace.tell(self._where())
        if self.job.disp_freq > 0 and self.step > max(self._shown[0], self.job.disp_after):
            # what the summary says of training is to be of the last step
            self._display(self.step - 1)
        self._settle()
        seconds = time.perf_counter() - started
        self._finish()
        self._say("leave", Address.stub(0))
        return self._stats(seconds)

    def _readers(self) -> list[StoreInput]:
        """Return the layers that read the records of the training net, if there are steps to train."""
        layers = self.net.layers if self.step < self.job.train_steps else []
        return [layer for layer in layers if isinstance(layer, StoreInput)]

    def _read_ahead(self) -> None:
        """Open the records, and begin to read while others set up."""
        for layer in self._readers():
            self._running.layer = layer
            layer.read_ahead()
        self._running.layer = None

    def _rest(self) -> None:
        """Do what is due before this step: validate, test, checkpoint."""
        for phase, freq, after, steps in self._tests():
            if phase in self.nets and fires(self.step, freq, after):
                self._test(phase, steps)
        job = self.job
        if self.step > self.start.step and fires(self.step, job.checkpoint_freq, job.checkpoint_after):
            self._checkpoint()
        while self._snapshots and not self._inbox.empty():
            self._take(self._inbox.get())

    def _tests(self) -> list[tuple[Phase, int, int, int]]:
        job = self.job
        return [
            (Phase.VALIDATION, job.validate_freq, job.validate_after, job.validate_steps),
            (Phase.TEST, job.test_freq, job.test_after, job.test_steps),
        ]

    def _train_step(self) -> None:
        self._clock.begin()
        self._running = self._algorithms[Phase.TRAIN]
        try:
            self._running.train_one_batch(self.step)
            self._params.flush()
        finally:
            self._tell_bad_records()
        self._clock.end()
        if fires(self.step, self.job.disp_freq, self.job.disp_after):
            self._display(self.step)

    def _settle(self) -> None:
        """Wait for the device, and check what only then is known, before anything but a step is done."""
        self._clock.settle()
        self._running = self._algorithms[Phase.TRAIN]
        self._running.check_losses(wait=True)

    def _collect_all(self) -> None:
        """Wait for the updates of all steps so far, and check what they have made."""
        self._settle()
        self._params.collect_all()
        self._running.check_params()

    def _finish(self) -> None:
        """Write the last checkpoint, test once more."""
        if not self._is_first():
            self._collect_all()
        self._checkpoint()
        for phase, _, _, steps in self._tests():
            # a stop that comes later than the last step finds other workers of the group at this
            if phase in self.nets and self.step >= self.job.train_steps:
                self._test(phase, steps)
        while self._snapshots:
            self._take(self._inbox.get())

    def _is_first(self) -> bool:
        return self.address.group == 0 and self.address.id == 0

    # -- what people see -------------------------------------------------------------------------------

    def _test(self, phase: Phase, steps: int) -> None:
        """Run the net of ``phase`` over ``steps`` batches and tell its metrics."""
        self._collect_all()
        net, self._running = self.nets[phase], self._algorithms[phase]
        net.context.step = self.step
        try:
            for _ in range(steps):
                self._running.test_one_batch(phase)
        finally:
            self._tell_bad_records()
        self._emit(self._metrics(phase, net, self.step))

    def _tell_bad_records(self) -> None:
        found = sum(layer.bad_records for layer in self._inputs)
        if found == self.bad_records:
            return
        self.bad_records = found
        for layer in self._inputs:
            for facts in layer.take_bad():
                self._emit({"event": "bad_record", "unit": str(self.address), **facts})

    def _display(self, last: int) -> None:
        """Tell the metrics of training since the last time; ``last`` is the step that was done last."""
        self._settle()
        step, since, waited_data, waited_params = self._shown
        now, data, params = time.perf_counter(), self._data_wait_s(), self._params.wait_s
        n_steps = max(last + 1 - step, 1)
        event = self._metrics(Phase.TRAIN, self.net, last)
        event["samples_per_s"] = n_steps * self._n_rows / max(now - since, 1e-9)
        event["wait_data_ms"] = 1e3 * (data - waited_data) / n_steps
        event["wait_params_ms"] = 1e3 * (params - waited_params) / n_steps
        self._shown = (last + 1, now, data, params)
        self._emit(event)
        if self.job.debug:
            self._params.collect_all()
            log_layers(self.net, last)

    def _metrics(self, phase: Phase, net: NeuralNet, step: int) -> dict[str, Any]:
        return {
            "event": "metrics",
            "phase": PHASE_NAMES[phase],
            "group": self.address.group,
            "worker": self.address.id,
            "step": step,
            "time": time.time(),
            "epoch": max((epoch for layer in self.net.layers if (epoch := layer.epoch) is not None), default=None),
            "lr": self._learning_rate(max(min(self.step, self.job.train_steps - 1), 0)),
            "metrics": {name: list(pair) for name, pair in net.take_metrics().items()},
        }

    def _data_wait_s(self) -> float:
        return sum(getattr(layer, "wait_s", 0.0) for layer in self.net.layers)

    def _stats(self, seconds: float) -> dict[str, Any]:
        step_ms = 1e3 * np.asarray(self._clock.seconds or [0.0])
        n_steps = max(len(self._clock.seconds), 1)
        n_local = sum(layer.bytes_local for layer in self._inputs)
        return {
            "steps": self.step,
            "seconds": seconds,
            "stopped": self.stop_at >= 0,
            "step_ms": {"median": float(np.median(step_ms)), "p95": float(np.percentile(step_ms, 95))},
            "samples": len(self._clock.seconds) * self._n_rows * self.net.context.weight / self._n_workers,
            "wait_ms": {"data": 1e3 * self._data_wait_s() / n_steps, "params": 1e3 * self._params.wait_s / n_steps},
            "read": {"local": n_local, "remote": sum(layer.bytes_read for layer in self._inputs) - n_local},
        }

    # -- checkpoints -------------------------------------------------------------------------------------

    def _where(self) -> dict[str, Any]:
        cursors = {PHASE_NAMES[phase]: net.cursors() for phase, net in self.nets.items()}
        return {"step": self.step, "cursors": cursors}

    def _checkpoint(self) -> None:
        """Begin a checkpoint as the first worker; where it does not know all, others tell it, and wait meanwhile."""
        if self._is_first():
            self._begin_checkpoint()
            for other in self._others:
                self._say("taken", Address.worker(0, other))
        elif self.address.group == 0 and self._others:
            self._collect_all()
            names = self.net.context.class_names.noted()
            self._say("cursors", Address.worker(0, 0), info={**self._where(), "class_names": names})
            self._hear("taken")

    def _begin_checkpoint(self) -> None:
        """Ask every server for its part; training goes on once all have taken their copy."""
        self._collect_all()
        where = self._where()
        while len(self._told) < len(self._others):
            self._take(self._inbox.get())
        names = self.net.context.class_names.noted()
        while self._told:
            told = self._told.pop().info
            names |= told["class_names"]
            for phase, cursors in told["cursors"].items():
                where["cursors"][phase] |= cursors
        cluster = self.job.cluster
        facts = {
            "job": self.job.name,
            "step": self.step,
            "seed": self.job.seed,
            "time": time.time(),
            "params": describe_params(self.net),
            "groups": {str(self.address.group): where},
            "deals": {name: list(deal) for name, deal in self.net.context.deals.items()},
            **({"class_names": names} if names else {}),
        }
        url = self._snapshots.begin(self.step, facts)
        for group in range(1, cluster.nworker_groups):
            for worker in (0, *self._others):
                self._say("progress", Address.worker(group, worker), step=self.step)
        group = self.plan.layout.server_group_of(0)
        for i in range(cluster.nservers_per_group):
            self._say("snapshot", Address.server(group, i), step=self.step, info={"url": url})
        for _ in range(cluster.nservers_per_group):
            self._hear("r-snapshot")

    def _take(self, message: Message) -> None:
        """Note what came for a checkpoint; go on without one that could not be written, unless it is the last."""
        if message.kind == "abort":
            raise Aborted(message.info["reason"])
        if message.kind == "cursors":  # it may be some steps ahead, while parts of an earlier checkpoint come in
            self._told.append(message)
            return
        event = self._snapshots.take(message)
        if event is None:
            return
        ended = self.step >= self.job.train_steps or self.step == self.stop_at
        if "error" in event and event["step"] == self.step and ended:
            raise CheckpointError(event["error"])
        self._emit({"unit": str(self.address), **event})

    # -- saying and hearing ----------------------------------------------------------------------------

    def _say(self, kind: str, to: Address, **fields: Any) -> None:
        self._post(Message(kind, src=self.address, dst=to, **fields))

    def _hear(self, kind: str) -> Message:
        """Wait for a message of ``kind``; what comes for a checkpoint meanwhile is noted."""
        while True:
            message = self._inbox.get()
            if message.kind == kind:
                return message
            self._take(message)

    def _stopping(self) -> bool:
        """Say whether the group stops before this step; the first worker agrees on one that none has reached."""
        if self.stop_requested and self.stop_at < 0:
            n = self.job.cluster.nworkers_per_group
            stop_at = self.step + (2 + self.pace.ahead if n > 1 else 0)
            for i in range(1, n):
                self._say("stop-at", Address.worker(self.address.group, i), step=stop_at)
            for _ in range(1, n):
                self._hear("r-stop-at")
            self.stop_at = stop_at
        return 0 <= self.stop_at <= self.step


def fires(step: int, freq: int, after: int) -> bool:
    """Say whether something that happens every ``freq`` steps, from step ``after`` on, is due at ``step``."""
    return freq > 0 and step >= after and (step - after) % freq == 0
