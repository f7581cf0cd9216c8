"""Worker: trains one replica, or its share of one, step by step; after SINGA's src/worker.cc.

A worker knows nets, steps and messages. It opens no socket: what it says goes through ``post``, what it
is told comes in through ``inbox``, what people should see goes to ``emit``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from singa_dask.comm import Address, Message
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import Aborted, CheckpointError
from singa_dask.layers import Layer, StoreInput
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.pending_checkpoints import PendingCheckpoints, describe_params, merge_cursors
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.units.calendar import Calendar
from singa_dask.runtime.units.debug import log_layers
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.runtime.units.lockstep import Lockstep
from singa_dask.runtime.units.step_timer import StepTimer
from singa_dask.runtime.units.watch import Watch
from singa_dask.runtime.units.worker_metrics import PHASE_NAMES, WorkerMetrics
from singa_dask.runtime.units.worker_params import WorkerParams
from singa_dask.train import ALGORITHMS

__all__ = ["Worker"]


class Worker:
    """One worker of a worker group.

    Parameters
    ----------
    address : Address
    job : JobConf
    plan : JobPlan
    nets : mapping of Phase to NeuralNet
        With memory: what `build_nets` returned, allocated.
    initial_state : InitialState
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
    lockstep : Lockstep
        Its ``progress`` has step and cursors at the start of the current step.
    stop_at : int
        Step at which the whole group stops early; -1 if it does not.
    stop_requested : bool
        Set from outside on the first worker of a group.
    ended : str
        Why the training ends before its last step and is done all the same; empty if it does not.
    due_at : int
        Step at which a checkpoint is due by time.
    """

    def __init__(
        self,
        address: Address,
        job: JobConf,
        plan: JobPlan,
        nets: Mapping[Phase, NeuralNet],
        initial_state: InitialState,
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
        self.initial_state = initial_state
        self.step = initial_state.step_of(address.group)
        self.stop_at = -1
        self.stop_requested = False
        self.ended = ""
        self.due_at = -1
        self._post = post
        self._inbox = inbox
        self._emit = emit
        self._params = params
        self._calendar = Calendar(job)
        cluster = job.cluster
        self._metrics = WorkerMetrics(address, job, nets, params, self.step)
        resumed = initial_state.resumed.manifest if initial_state.resumed else {}
        self._watch = Watch(job, resumed)
        self._measured: list[Message] = []
        # the step before which tests were done, and when the last checkpoint was begun
        self._tested = self.step if resumed.get("tested") else -1
        self._saved_at = time.perf_counter()
        # whose params and records the first worker may not have
        self._others = range(1, cluster.nworkers_per_group) if self.net.is_partitioned else range(0)
        n_reporters = 1 + len(self._others)
        self._pending = PendingCheckpoints(
            checkpoint_url, cluster.nservers_per_group, cluster.nworker_groups, n_reporters, job.keep_checkpoints
        )
        self._cursors: list[Message] = []
        self.lockstep = Lockstep(self.net)
        self._timer = StepTimer(self.net.ops)
        conf = job.train_one_batch
        algorithm = ALGORITHMS.find(conf.alg)
        self._algorithms = {phase: algorithm(net, params.collect, params.update, conf) for phase, net in nets.items()}
        self._running = self._algorithms[Phase.TRAIN]
        if not params.leave_the_device:
            self._running.capture_steps()
        self.lockstep.record_progress(self._where())

    @property
    def layer(self) -> Layer | None:
        """The layer being computed: where an error happened."""
        return self._running.layer

    @property
    def bad_records(self) -> int:
        """Records that batches wanted and could not have so far, each once for every input layer."""
        return self._metrics.bad_records

    # -- the life of a worker ----------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Train to the end, or to a stop; return what the summary of the job needs.

        Raises
        ------
        Aborted
            Another unit failed.
        """
        self._send("hello", Address.stub(0))
        self._read_ahead()
        self._wait_for("start")
        self._params.begin(self.initial_state)
        for layer in self._readers():
            layer.wait_for_records()
        self._send("ready", Address.stub(0))
        self._wait_for("go")
        started = time.perf_counter()
        self._metrics.begin(started)
        self._saved_at = started
        self._end_early(self._watch.reason)
        while self.step < self.job.train_steps and not self._stopping():
            self.lockstep.record_progress(self._where())
            self._rest()
            if self.stop_at == self.step:
                break
            self.lockstep.step()
            self._train_step()
            self.step += 1
        self.lockstep.record_progress(self._where())
        if self.job.disp_freq > 0 and self.step > max(self._metrics.shown, self.job.disp_after):
            # what the summary says of training is to be of the last step
            self._display(self.step - 1)
        self._synchronize()
        seconds = time.perf_counter() - started
        self._finish()
        self._send("leave", Address.stub(0))
        facts = {"steps": self.step, "stopped": self.stop_at >= 0 and not self.ended, "ended": self.ended}
        return facts | self._metrics.summary(self._timer, seconds)

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
        if self.step != self._tested:
            for phase, n_batches, is_due in self._calendar.tests(self.step):
                if phase in self.nets and is_due:
                    self._test(phase, n_batches)
            self._tested = self.step
        if self.stop_at != self.step and self._checkpoint_is_due():
            self._checkpoint()
        while self._pending and not self._inbox.empty():
            self._note(self._inbox.get())

    def _checkpoint_is_due(self) -> bool:
        """Say whether a checkpoint is due before this step; the first worker says so when it is by time."""
        job = self.job
        if self.step <= self.initial_state.step or self.step < job.checkpoint_after:
            return False
        if self._is_first() and job.checkpoint_minutes and not self._pending and self.due_at < self.step:
            if time.perf_counter() - self._saved_at >= 60 * job.checkpoint_minutes:
                self.due_at = self._agree_on("checkpoint-at")
        return self.step == self.due_at or self._calendar.saves(self.step)

    def _train_step(self) -> None:
        self._timer.begin()
        self._running = self._algorithms[Phase.TRAIN]
        try:
            self._running.train_one_batch(self.step)
            self._params.flush()
        finally:
            self._tell_bad_records()
        self._timer.end()
        if self._calendar.shows(self.step):
            self._display(self.step)

    def _synchronize(self) -> None:
        """Wait for the device, and check what only then is known, before anything but a step is done."""
        self._timer.synchronize()
        self._running = self._algorithms[Phase.TRAIN]
        self._running.check_losses(wait=True)

    def _collect_all(self) -> None:
        """Wait for the updates of all steps so far, and check what they have made."""
        self._synchronize()
        self._params.collect_all()
        self._running.check_params()

    def _finish(self) -> None:
        """Write the last checkpoint, test once more."""
        if not self._is_first():
            self._collect_all()
        self._checkpoint()
        for phase, n_batches, is_due in self._calendar.tests(self.step):
            # a stop that comes later than the last step finds other workers of the group at this
            at_end = self.step >= self.job.train_steps
            if phase in self.nets and (at_end or (self.ended and not is_due)):
                self._test(phase, n_batches)
        while self._pending:
            self._note(self._inbox.get())

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
        totals = net.take_metrics()
        self._emit(self._metrics.of(phase, self.step, totals))
        if PHASE_NAMES[phase] in self._watch.phases and not self.ended:
            self._judge(PHASE_NAMES[phase], totals)

    def _judge(self, phase: str, totals: Mapping[str, tuple[float, float]]) -> None:
        """Have the first worker look at what all workers of the group have measured; wait for its word."""
        first, others = Address.worker(0, 0), range(1, self.job.cluster.nworkers_per_group)
        if not self._is_first():
            self._send("measured", first, step=self.step, info={name: list(pair) for name, pair in totals.items()})
            self._end_early(self._wait_for("judged").info["reason"])
            return
        while len(self._measured) < len(others):
            self._note(self._inbox.get())
        told = sorted(self._measured, key=lambda message: message.src)
        self._measured.clear()
        self._watch.add(phase, self.step, [totals, *(message.info for message in told)])
        for other in others:
            self._send("judged", Address.worker(0, other), info={"reason": self._watch.reason})
        self._end_early(self._watch.reason)

    def _end_early(self, reason: str) -> None:
        """End the training of the group before this step, if there is a reason; the first worker ends all groups."""
        if not reason or self.ended:
            return
        self.ended, self.stop_at = reason, self.step
        for group in range(1, self.job.cluster.nworker_groups) if self._is_first() else ():
            self._send("end", Address.worker(group, 0), info={"reason": reason})

    def _tell_bad_records(self) -> None:
        for facts in self._metrics.take_bad():
            self._emit({"event": "bad_record", "unit": str(self.address), **facts})

    def _display(self, last: int) -> None:
        """Tell the metrics of training since the last time; ``last`` is the step that was done last."""
        self._synchronize()
        self._emit(self._metrics.of_training(last))
        if self.job.debug:
            self._params.collect_all()
            log_layers(self.net, last)

    # -- checkpoints -------------------------------------------------------------------------------------

    def _where(self) -> dict[str, Any]:
        cursors = {PHASE_NAMES[phase]: net.cursors() for phase, net in self.nets.items()}
        return {"step": self.step, "cursors": cursors}

    def _checkpoint(self) -> None:
        """Begin a checkpoint as the first worker; where it does not know all, others tell it, and wait meanwhile."""
        if self._is_first():
            self._begin_checkpoint()
            for other in self._others:
                self._send("taken", Address.worker(0, other))
        elif self.address.group == 0 and self._others:
            self._collect_all()
            names = self.net.context.class_names.to_dict()
            self._send("cursors", Address.worker(0, 0), info={**self._where(), "class_names": names})
            self._wait_for("taken")

    def _begin_checkpoint(self) -> None:
        """Ask every server for its part; training goes on once all have taken their copy."""
        self._collect_all()
        where = self._where()
        while len(self._cursors) < len(self._others):
            self._note(self._inbox.get())
        names = self.net.context.class_names.to_dict()
        merge_cursors(where, names, self._cursors)
        facts = {
            "job": self.job.name,
            "step": self.step,
            "seed": self.job.seed,
            "time": time.time(),
            "params": describe_params(self.net),
            "groups": {str(self.address.group): where},
            "deals": {name: list(deal) for name, deal in self.net.context.deals.items()},
            "tested": self._tested == self.step,
            **self._watch.state(),
            **({"class_names": names} if names else {}),
        }
        self._saved_at = time.perf_counter()
        url = self._pending.begin(self.step, facts)
        cluster = self.job.cluster
        for group in range(1, cluster.nworker_groups):
            for worker in (0, *self._others):
                self._send("progress", Address.worker(group, worker), step=self.step)
        group = self.plan.layout.server_group_of(0)
        for i in range(cluster.nservers_per_group):
            self._send("snapshot", Address.server(group, i), step=self.step, info={"url": url})
        for _ in range(cluster.nservers_per_group):
            self._wait_for("r-snapshot")

    def _note(self, message: Message) -> None:
        """Note what came for a checkpoint; go on without one that could not be written, unless it is the last."""
        if message.kind == "abort":
            raise Aborted(message.info["reason"])
        # it may be some steps ahead, while parts of an earlier checkpoint come in
        if message.kind in ("cursors", "measured"):
            (self._cursors if message.kind == "cursors" else self._measured).append(message)
            return
        event = self._pending.take(message)
        if event is None:
            return
        ended = self.step >= self.job.train_steps or self.step == self.stop_at
        if "error" in event and event["step"] == self.step and ended:
            raise CheckpointError(event["error"])
        self._emit({"unit": str(self.address), **event})

    # -- saying and hearing ----------------------------------------------------------------------------

    def _send(self, kind: str, to: Address, **fields: Any) -> None:
        self._post(Message(kind, src=self.address, dst=to, **fields))

    def _wait_for(self, kind: str) -> Message:
        """Wait for a message of ``kind``; what comes for a checkpoint meanwhile is noted."""
        while True:
            message = self._inbox.get()
            if message.kind == kind:
                return message
            self._note(message)

    def _stopping(self) -> bool:
        """Say whether the group stops before this step; the first worker agrees on one that none has reached."""
        if self.stop_requested and self.stop_at < 0:
            self.stop_at = self._agree_on("stop-at", reason=self.ended)
        return 0 <= self.stop_at <= self.step

    def _agree_on(self, kind: str, **info: Any) -> int:
        """Tell the others of the group of a step for something that none of them has reached; return it."""
        n = self.job.cluster.nworkers_per_group
        at = self.step + (2 + self.lockstep.ahead if n > 1 else 0)
        for i in range(1, n):
            self._send(kind, Address.worker(self.address.group, i), step=at, info=info)
        for _ in range(1, n):
            self._wait_for(f"r-{kind}")
        return at
