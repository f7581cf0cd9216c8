"""Worker: trains one replica, or its share of one, step by step; after SINGA's src/worker.cc.

A worker opens no socket: its messages, and what people should see, go through a `Channel`.
"""

from __future__ import annotations

import hashlib
import json
import math
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from singa_dask.comm.message import Address, Message
from singa_dask.conf import JobConf, Phase
from singa_dask.conf.watched import EarlyStoppingConf, is_less_better, split_metric
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.bridge import IN_FLIGHT, BridgeSrc
from singa_dask.layers.input import StoreInput
from singa_dask.layers.metrics import Totals, add_totals
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.manifest import Author
from singa_dask.runtime.planning.nets import Nets, phase_name
from singa_dask.runtime.planning.placement import JobPlan
from singa_dask.runtime.units.checkpointing import Checkpointing, SaveLater, describe_params
from singa_dask.runtime.units.profiler import Profiler, Trace
from singa_dask.runtime.units.run_state import Channel, InitialState, RunState, is_due
from singa_dask.runtime.units.trainer import Trainer
from singa_dask.runtime.units.worker_params import WorkerParams
from singa_dask.shown import plural
from singa_dask.training.pass_metrics import PassMetrics

# Evaluation: tests and validates a net while it is trained, and ends the training when a metric stops improving.


class Evaluation:
    """Runs the tests and validations of one worker when they are due.

    The first worker of the first group collects what all workers of the group have measured and judges for them.

    Parameters
    ----------
    job : JobConf
    trainer : Trainer
    state : RunState
    channel : Channel
    manifest : mapping
        Of the checkpoint that the run goes on from; empty for a new run.
    """

    def __init__(
        self, job: JobConf, trainer: Trainer, state: RunState, channel: Channel, manifest: Mapping[str, Any]
    ) -> None:
        self._trainer = trainer
        self._state = state
        self._channel = channel
        # number of batches, None where every record counts once; how often it is due, and from which step on
        self._tests = {
            Phase.VALIDATION: (job.validate_steps, job.validate_freq, job.validate_after),
            Phase.TEST: (job.test_steps, job.test_freq, job.test_after),
        }
        self._watch = Watch(job, manifest)
        self.restores_best = job.early_stopping is not None and job.early_stopping.restore_best
        self._others = range(1, job.cluster.nworkers_per_group)
        # the step before which tests were done
        self._tested = state.step if manifest.get("tested") else -1
        # metrics of the other workers, by phase and step; they may come before this one has its own
        self._measured: defaultdict[tuple[str, int], list[Message]] = defaultdict(list)
        channel.on("measured", lambda message: self._measured[message.info["phase"], message.step].append(message))

    def begin(self) -> None:
        """End a run that goes on from a checkpoint at once if its metric had stopped improving there."""
        self._state.end_early(self._watch.reason)

    def run_due(self) -> None:
        """Run what is due before this step."""
        if self._state.step == self._tested:
            return
        for phase, (n_batches, freq, after) in self._tests.items():
            if phase in self._trainer.nets and is_due(self._state.step, freq, after):
                self._test(phase, n_batches)
        self._tested = self._state.step

    def run_last(self) -> None:
        """Run every test and validation once more at the end; not after a stop."""
        state = self._state
        counts = self._tested != state.step  # else the run before this one has judged the step
        for phase, (n_batches, freq, after) in self._tests.items():
            # a stop that comes later than the last step finds other workers of the group at this
            is_left = state.is_trained or (state.reason and not is_due(state.step, freq, after))
            if phase in self._trainer.nets and is_left:
                self._test(phase, n_batches, counts)
        if state.is_trained:
            self._tested = state.step

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint before this step keeps."""
        return {"tested": self._tested == self._state.step, **self._watch.state()}

    def _test(self, phase: Phase, n_batches: int | None, counts: bool = True) -> None:
        name, step = phase_name(phase), self._state.step
        totals, metrics = self._trainer.test(phase, n_batches, step)
        is_watched = counts and name in self._watch.phases and not self._state.reason
        if not self._state.is_first:
            self._trainer.metrics.report(phase, step, totals)
            if is_watched or metrics:
                self._send(name, totals, metrics)
            if is_watched:
                self._judge(self._channel.wait_for("judged").info)
            return
        others = self._receive(name) if is_watched or metrics else []
        for message in others:
            metrics.merge(dict(zip(message.info["arrays"], message.arrays, strict=True)))
        totals = {**totals, **{key: (value, 1.0) for key, value in metrics.values().items()}}
        self._trainer.metrics.report(phase, step, totals)
        if is_watched:
            self._watch.add(name, step, [totals, *(message.info["totals"] for message in others)])
            info = {"reason": self._watch.reason, "saves": self.restores_best and self._watch.is_best_at(step)}
            for other in self._others:
                self._channel.send("judged", Address.worker(0, other), info=info)
            self._judge(info)

    def _judge(self, info: Mapping[str, Any]) -> None:
        """End the training, or have the best params so far saved, as the first worker says."""
        if info["saves"]:
            self._state.save_at["checkpoint"] = self._state.step
        self._state.end_early(str(info["reason"]))

    def _send(self, phase: str, totals: Totals, metrics: PassMetrics) -> None:
        """Send the first worker what this one has measured."""
        state = metrics.state()
        arrays = tuple(map(np.ascontiguousarray, state.values()))
        info = {"phase": phase, "totals": {name: list(pair) for name, pair in totals.items()}, "arrays": list(state)}
        self._channel.send("measured", Address.worker(0, 0), step=self._state.step, info=info, arrays=arrays)

    def _receive(self, phase: str) -> list[Message]:
        """Return what the other workers of the group have measured, in their order."""
        key = phase, self._state.step
        while len(self._measured[key]) < len(self._others):
            self._channel.receive("metrics of the other workers")
        return sorted(self._measured.pop(key), key=lambda message: message.src)


class Watch:
    """Tracks the metrics that ``early_stopping`` and ``keep_checkpoints`` name.

    Counts consecutive tests without a better value of the metric of ``early_stopping``.

    Parameters
    ----------
    job : JobConf
    state : mapping
        Result of ``state()`` in the checkpoint that the run continues from; empty for a new run.

    Attributes
    ----------
    phases : set of str
        Phases with such a metric: ``"validation"``, ``"test"``.
    """

    def __init__(self, job: JobConf, state: Mapping[str, Any]) -> None:
        keep = job.keep_checkpoints
        confs = {"early_stopping": job.early_stopping, "keep_checkpoints": keep if keep and keep.metric else None}
        self._keys = {conf.metric: key for key, conf in confs.items() if conf is not None}
        self.phases = {split_metric(metric)[0] for metric in self._keys}
        values = state.get("metrics", {})
        self._latest: dict[str, dict[str, float]] = {
            metric: values[metric] for metric in self._keys if metric in values
        }
        self._conf = job.early_stopping
        known = state.get("early_stopping", {})
        if self._conf is None or known.get("metric") != self._conf.metric:
            known = {}
        self._best: float | None = known.get("best")
        self._best_step: int = known.get("best_step", -1)
        self._n_worse: int = known.get("n_worse", 0)

    @property
    def reason(self) -> str:
        """Why the training is to end; empty if it is not."""
        if self._conf is None or self._n_worse < self._conf.patience:
            return ""
        best = "no finite value" if self._best is None else f"{self._best:.6g} at step {self._best_step}"
        worse = plural(self._n_worse, "time")
        return f"early stopping: {self._conf.metric} has not improved {worse} in a row. Best: {best}."

    def add(self, phase: str, step: int, measured: Sequence[Mapping[str, Sequence[float]]]) -> None:
        """Add the (sum, count) of the metrics of a test, from each worker of the group.

        Raises
        ------
        ConfigError
            The net has no such metric.
        """
        known = add_totals(measured)
        for metric, key in self._keys.items():
            where, name = split_metric(metric)
            if where != phase:
                continue
            if name not in known:
                message = f"the {phase} net has no metric {name!r}. Known: {', '.join(sorted(known)) or 'none'}."
                raise ConfigError(Problem((key, "metric"), message))
            total, count = known[name]
            if not count:
                continue  # no row counts: the labels of all are ignored
            value = total / count
            if math.isfinite(value):
                self._latest[metric] = {"value": value, "step": step}
            if self._conf and metric == self._conf.metric:
                self._count(self._conf, step, value)

    def _count(self, conf: EarlyStoppingConf, step: int, value: float) -> None:
        sign = -1.0 if is_less_better(conf.metric, conf.mode) else 1.0
        known, delta = self._best, conf.min_delta
        best = better = math.isfinite(value) and (known is None or sign * (value - known) > delta)
        if conf.every_best and known is not None and math.isfinite(value):
            best, better = sign * value > sign * known, sign * value >= sign * known + delta
        if best:
            self._best, self._best_step = value, step
        self._n_worse = 0 if better else self._n_worse + 1

    def is_best_at(self, step: int) -> bool:
        """Tell whether the best value of the metric of ``early_stopping`` so far is that of a step."""
        return self._best_step == step

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; empty if the job tracks no metric."""
        state: dict[str, Any] = {"metrics": dict(self._latest)} if self._keys else {}
        if self._conf:
            stopping = {"metric": self._conf.metric, "best": self._best, "best_step": self._best_step}
            stopping["restore_best"] = self._conf.restore_best
            state["early_stopping"] = {**stopping, "n_worse": self._n_worse}
        return state


def _digests(trainer: Trainer) -> dict[str, str]:
    """Return digests of what all workers must have alike, by what it is: params, and what is learned of the records."""
    facts: dict[str, Any] = {"the params of the net": list(describe_params(trainer.net).items())}
    for key, by_layer in trainer.net.context.class_names.to_dict().items():
        for layer, learned in by_layer.items():
            each = learned if key == "tables" else {key.replace("_", " "): learned}
            facts |= {f"{name} of layer {layer!r}": value for name, value in each.items()}
    for reader in trainer.net.layers:
        if isinstance(reader, StoreInput) and reader.store is not None:
            facts[f"the blocks of records of layer {reader.conf_name!r}"] = reader.store.fingerprint
    return {what: hashlib.sha256(json.dumps(_rounded(value)).encode()).hexdigest() for what, value in facts.items()}


def _rounded(value: Any) -> Any:
    """Return JSON with floats of six digits: hosts with other processors may differ in the last ones."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


class Worker:
    """One worker of a worker group.

    Parameters
    ----------
    channel : Channel
        Its messages.
    job : JobConf
    plan : JobPlan
    nets : Nets
        With memory: what `build_nets` returned, allocated.
    initial_state : InitialState
        Step, values and cursors to begin with.
    checkpoint_url : str
        Directory that ``step-<n>`` directories go to.
    params : WorkerParams
        Of the training net.
    save_later, in_background, takes_snapshots, author
        See `Checkpointing`.
    trace : Trace or None
        If the job is profiled.

    Attributes
    ----------
    address : Address
    trainer : Trainer
    state : RunState
    """

    ANSWERED_AT_ONCE: ClassVar[frozenset[str]] = frozenset(
        {"stop-at", "checkpoint-at", "snapshot-at", "end", "progress", "replaced"}
    )
    """Kinds of messages that do not wait for the next step; `accept` takes them."""

    def __init__(
        self,
        channel: Channel,
        job: JobConf,
        plan: JobPlan,
        nets: Nets,
        initial_state: InitialState,
        checkpoint_url: str,
        params: WorkerParams,
        save_later: SaveLater,
        in_background: Callable[[Callable[[], None]], None],
        takes_snapshots: bool,
        author: Author,
        trace: Trace | None,
    ) -> None:
        self.address = address = channel.address
        self._params = params
        self._initial_state = initial_state
        self._channel = channel
        self._process_of = plan.layout.process_of
        step = initial_state.step_of(address.group)
        self.trainer = Trainer(channel, job, nets, params, step, initial_state.window_of(address, plan))
        for kind in self.ANSWERED_AT_ONCE:
            channel.on(kind, self.accept)  # if it came before this worker was there
        for kind in ("start", "go"):  # answers to a message that was sent again
            channel.on(kind, lambda message: None)
        net, window = nets[Phase.TRAIN], job.profile.window(step, job.train_steps) if job.profile else range(0)
        self._profiler = Profiler(str(address), nets, net.cancellation, trace, window, self.trainer.metrics.times_s)
        self._said: Message | None = None
        self._lockstep = Lockstep(net)
        self.state = state = RunState(job, channel, step, self._lockstep.ahead, initial_state.rejoin is not None)
        self._evaluation = Evaluation(job, self.trainer, state, channel, initial_state.manifest_of(address.group))
        self._checkpointing = Checkpointing(
            job, plan, checkpoint_url, self.trainer, state, channel, save_later, in_background, takes_snapshots, author
        )
        if initial_state.rejoin is not None:
            self._checkpointing.leave(initial_state.rejoin.left)

    # -- what others see -----------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Current training step."""
        return self.state.step

    @property
    def bad_records(self) -> int:
        """Number of records that could not be read so far, each once for every input layer."""
        return self.trainer.metrics.bad_records

    def accept(self, message: Message) -> None:
        """Take a message that is `ANSWERED_AT_ONCE`, in the thread that delivers it, and answer it."""
        if message.kind == "progress":
            self._checkpointing.reporter.accept(message)
        elif message.kind == "replaced":
            self._repeat(message)
        else:
            self.state.accept(message)
            if message.kind != "end":
                self._channel.send(f"r-{message.kind}", message.src, step=message.step)

    def _repeat(self, message: Message) -> None:
        """Send again what units have missed that start anew.

        Parameters
        ----------
        message : Message
            ``replaced``: from now on messages to its ``units`` reach those that start anew. ``left``: workers that are
            done, in processes that are lost, and do not start again.
        """
        units = [Address(*unit) for unit in message.info["units"]]
        left = [Address(*unit) for unit in message.info["left"]]
        if self._said and any(self._process_of[unit] == 0 for unit in (*units, *left)):
            self._channel.post(self._said)
        self.state.repeat_end(units)
        self._checkpointing.reporter.repeat_arrival()
        if self.state.is_first:
            self._channel.put(replace(message, kind="ask-again", info={"units": units, "left": left}))

    # -- its life ------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Train to the end, or to a stop; return the part of this worker in the summary of the job.

        Raises
        ------
        Aborted
            Another unit failed.
        """
        self._set_up()
        if self.state.is_first:
            self._channel.emit({"event": "training", "step": self.step})
        started = time.perf_counter()
        self.trainer.begin(started)
        self._checkpointing.begin(started)
        self._evaluation.begin()
        self._train()
        self._profiler.end()
        self.trainer.report_rest(self.step)
        self.trainer.synchronize()
        seconds = time.perf_counter() - started
        self._finish()
        facts = {"steps": self.step, "stopped": self.state.was_stopped, "ended": self.state.reason}
        facts |= self.trainer.summary(seconds)
        computes_as_first = self.address.group or (self.address.id and not self.trainer.net.is_partitioned)
        return facts if computes_as_first else facts | self._profiler.summary()

    def _set_up(self) -> None:
        """Get initial values and the first records; wait until all workers have theirs."""
        self._say("hello")
        self.trainer.read_ahead()
        self._wait_for("start")
        self._params.begin(self._initial_state)
        self._initial_state.release()
        self.trainer.wait_for_records()
        files, host = self.trainer.remote_versions(), socket.gethostname()
        self._initial_state.check_files(files)
        self._say("ready", host=host, facts={**files, **_digests(self.trainer)})
        for what, (value, first) in self._wait_for("go").info["differing"].items():
            if what in files:
                raise DataError(
                    f"{what}: the file was replaced while the job started: {first} opened version {value}, {host} "
                    f"version {files[what]}. Start the job again."
                )
            raise DataError(
                f"{what} differ between a worker on {first} and one on {host}, which would train one net on different "
                "records. Give both the same files, of the same content."
            )

    def _say(self, kind: str, **info: Any) -> None:
        """Send a message to the coordinator; it is sent again if that is replaced before it has answered."""
        self._said = Message(kind, src=self.address, dst=Address.stub(0), info=info)
        self._channel.post(self._said)

    def _wait_for(self, answer: str) -> Message:
        message = self._channel.wait_for(answer)
        self._said = None
        return message

    def _train(self) -> None:
        """Do the steps, with the tests and checkpoints that are due before each."""
        state, profiler = self.state, self._profiler
        while not state.is_trained and not state.stops():
            profiler.begin(state.step)
            self._evaluation.run_due()
            profiler.mark("test")
            if state.stop_at != state.step:
                self._checkpointing.save_due(self._evaluation.state)
            self._checkpointing.finish(wait=False)
            profiler.mark("checkpoint")
            if state.stop_at == state.step:
                break
            profiler.begin_step()
            self._lockstep.step()
            self.trainer.train(state.step)
            profiler.end_step()
            state.step += 1

    def _finish(self) -> None:
        """Write the last checkpoint, test once more, and leave."""
        if not self.state.is_first:
            self.trainer.collect_all()
        if self._evaluation.restores_best:  # the last checkpoint says whether its own params are the best
            self._evaluation.run_last()
        self._checkpointing.save(self._evaluation.state(), last=True)
        if not self._evaluation.restores_best:
            self._evaluation.run_last()
        self._checkpointing.finish(wait=True)
        self._say("leave", error=self._replaced_file())

    def _replaced_file(self) -> str:
        """Return the error of a file that was replaced after it was last compared; empty if none was.

        The coordinator ends the job with it after the last checkpoint, which other workers may still be writing.
        """
        try:
            for store in self.trainer.open_stores():
                store.check_unchanged()
        except DataError as error:
            return str(error)
        return ""


def disconnected_workers(n_workers: int, bridges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the first worker of each connected component, by bridges, that does not contain worker 0."""
    components = list(range(n_workers))
    for one, other in bridges:
        low, high = sorted((components[one], components[other]))
        components = [low if component == high else component for component in components]
    return sorted({*components} - {0})


class Lockstep:
    """Keeps a worker in lockstep with worker 0 if no bridge connects them, also if it has no layers.

    Parameters
    ----------
    net : NeuralNet
        The training net of the worker.

    Attributes
    ----------
    ahead : int
        Number of steps that one worker can be ahead of another: 0 if workers wait for each other's gradients in every
        step; more if bridges lead only one way, or connect only some of the workers.
    """

    def __init__(self, net: NeuralNet) -> None:
        worker, n_workers = net.context.worker, net.context.n_workers
        self.ahead = IN_FLIGHT * n_workers if net.is_partitioned else 0
        self._context = net.context
        self._n_steps = 0
        bridges = [
            (node.worker, node.peer)
            for layer, node in zip(net.all_layers, net.nodes, strict=True)
            if isinstance(layer, BridgeSrc) and node.worker is not None
        ]
        others = disconnected_workers(n_workers, bridges) if net.is_partitioned else []
        self._me = worker
        self._peers = others if worker == 0 else [0] if worker in others else []

    def step(self) -> None:
        """Begin a step, once the workers in lockstep are close enough.

        Raises
        ------
        Aborted
            The job ended meanwhile.
        """
        for peer in self._peers:
            self._context.bridges.send(peer, f"step of {self._me}", (), ())
            if self._n_steps >= IN_FLIGHT:
                self._context.bridges.receive(f"step of {peer}")
        self._n_steps += 1
