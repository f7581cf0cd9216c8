"""Worker: train one replica of the net, or a part of it, step by step. After SINGA's src/worker.cc.

A worker opens no socket. It sends messages and events through a `Channel`.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from singa_dask.comm.message import Address, Message
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import DataError
from singa_dask.inputs.store_input import StoreInput
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.nets import Nets
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.checkpointing import Checkpointing, describe_params
from singa_dask.runtime.units.evaluation import Evaluation
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.runtime.units.lockstep import Lockstep
from singa_dask.runtime.units.profiler import Profiler, Trace
from singa_dask.runtime.units.run_state import RunState
from singa_dask.runtime.units.saving import Saving
from singa_dask.runtime.units.trainer import Trainer
from singa_dask.runtime.units.worker_params import WorkerParams


def _digests(trainer: Trainer) -> dict[str, str]:
    """Return digests of values that must be equal on all workers, by description.

    These are the names and shapes of the params, and facts about the records, e.g. class names.
    """
    facts: dict[str, Any] = {"the params of the net": list(describe_params(trainer.net).items())}
    for key, by_layer in trainer.net.context.knowledge.known.to_dict().items():
        for layer, learned in by_layer.items():
            each = learned if key == "tables" else {key.replace("_", " "): learned}
            facts |= {f"{name} of layer {layer!r}": value for name, value in each.items()}
    for reader in trainer.net.layers:
        if isinstance(reader, StoreInput) and reader.store is not None:
            facts[f"the blocks of records of layer {reader.conf_name!r}"] = reader.store.fingerprint
    return {what: hashlib.sha256(json.dumps(_rounded(value)).encode()).hexdigest() for what, value in facts.items()}


def _rounded(value: Any) -> Any:
    """Return JSON values with floats of six digits, because further digits depend on the processor."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


class Worker:
    """One worker of a worker group.

    Parameters
    ----------
    nets : Nets
        Allocated nets from `build_nets`.
    params : WorkerParams
        Exchanges the params of the training net with servers.
    saving : Saving
        Saves parts of checkpoints and snapshots.
    trace : Trace or None
        Trace of the process; None if the job is not profiled.
    """

    ANSWERED_AT_ONCE: ClassVar[frozenset[str]] = frozenset(
        {"stop-at", "checkpoint-at", "snapshot-at", "report-at", "end", "progress", "replaced"}
    )
    """Kinds of messages that `accept` handles immediately, in the middle of a step."""

    def __init__(
        self,
        channel: Channel,
        job: JobConf,
        plan: JobPlan,
        nets: Nets,
        initial_state: InitialState,
        params: WorkerParams,
        saving: Saving,
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
            channel.on(kind, self.accept)  # messages that arrived before this worker existed are in the inbox
        for kind in ("start", "go"):  # a repeated message may be answered twice; ignore the second answer
            channel.on(kind, lambda message: None)
        net, window = nets[Phase.TRAIN], job.profile.window(step, job.train_steps) if job.profile else range(0)
        self._profiler = Profiler(str(address), nets, net.cancellation, trace, window, self.trainer.metrics.times_s)
        self._said: Message | None = None
        self._lockstep = Lockstep(net)
        self.state = state = RunState(job, channel, step, self._lockstep.ahead, initial_state.rejoin is not None)
        self._evaluation = Evaluation(job, self.trainer, state, channel, initial_state.manifest_of(address.group))
        self._checkpointing = Checkpointing(job, plan, saving, self.trainer, state, channel)
        if initial_state.rejoin is not None:
            self._checkpointing.leave(initial_state.rejoin.left)

    @property
    def step(self) -> int:
        """Current training step."""
        return self.state.step

    @property
    def bad_records(self) -> int:
        """Number of different unreadable records so far."""
        return self.trainer.metrics.bad_records

    def accept(self, message: Message) -> None:
        """Handle and answer a message of a kind in `ANSWERED_AT_ONCE`, in the thread that delivers it."""
        if message.kind == "progress":
            self._checkpointing.reporter.accept(message)
        elif message.kind == "replaced":
            self._repeat(message)
        else:
            self.state.accept(message)
            if message.kind != "end":
                self._channel.send(f"r-{message.kind}", message.src, step=message.step)

    def _repeat(self, message: Message) -> None:
        """Send messages again that restarting units have missed.

        The message ``replaced`` lists these ``units``. In ``left`` it lists workers that had finished before their
        process was lost.
        """
        units = [Address(*unit) for unit in message.info["units"]]
        left = [Address(*unit) for unit in message.info["left"]]
        if self._said and any(self._process_of[unit] == 0 for unit in (*units, *left)):
            self._channel.post(self._said)
        self.state.repeat_end(units)
        self._checkpointing.reporter.repeat_arrival()
        if self.state.is_first:
            self._channel.put(replace(message, kind="ask-again", info={"units": units, "left": left}))

    def run(self) -> dict[str, Any]:
        """Train to the end or until a stop; return the worker's part of the summary.

        Raises
        ------
        Aborted
            Another unit has failed.
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
        facts |= {**self.trainer.summary(seconds), "best_step": self._evaluation.best_step}
        computes_as_first = self.address.group or (self.address.id and not self.trainer.net.is_partitioned)
        return facts if computes_as_first else facts | self._profiler.summary()

    def _set_up(self) -> None:
        """Get the initial values and the first records; wait until all workers have done so."""
        self._tell_coordinator("hello")
        self.trainer.read_ahead()
        self._wait_for("start")
        self._params.begin(self._initial_state)
        self._initial_state.release()
        self.trainer.wait_for_records()
        files, host = self.trainer.remote_versions(), socket.gethostname()
        self._initial_state.check_files(files)
        self._tell_coordinator("ready", host=host, facts={**files, **_digests(self.trainer)})
        for what, (value, first) in self._wait_for("go").info["differing"].items():
            if what in files:
                raise DataError(
                    f"{what}: the file was replaced while the job started: {first} opened version {value}, {host} "
                    f"version {files[what]}. Start the job again."
                )
            raise DataError(
                f"{what} differ between a worker on {first} and one on {host}, which would train one net on different "
                "records. Give both hosts the same files."
            )

    def _tell_coordinator(self, kind: str, **info: Any) -> None:
        """Send a message to the coordinator. The message is sent again if the coordinator is replaced."""
        self._said = Message(kind, src=self.address, dst=Address.stub(0), info=info)
        self._channel.post(self._said)

    def _wait_for(self, answer: str) -> Message:
        message = self._channel.wait_for(answer)
        self._said = None
        return message

    def _train(self) -> None:
        """Train step by step, with the tests and checkpoints that are due before each step."""
        state, profiler = self.state, self._profiler
        while not state.is_trained and not state.should_stop():
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
        if self._evaluation.restores_best:  # test first, as the last checkpoint records whether its params are the best
            self._evaluation.run_last()
        self._checkpointing.save(self._evaluation.state(), last=True)
        if not self._evaluation.restores_best:
            self._evaluation.run_last()
        self._checkpointing.finish(wait=True)
        self._tell_coordinator("leave", error=self._replaced_file())

    def _replaced_file(self) -> str:
        """Return an error message if a file was replaced during the training; empty if no file was.

        The worker does not raise this error, because other workers may still be writing the last checkpoint. Instead
        the coordinator ends the job with it after all workers have left.
        """
        try:
            for store in self.trainer.open_stores():
                store.check_unchanged()
        except DataError as error:
            return str(error)
        return ""
