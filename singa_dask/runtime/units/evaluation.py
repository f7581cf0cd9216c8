"""Evaluation: tests and validates a net while it is trained, and ends the training when a metric stops improving."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singa_dask.comm import Address, Message
from singa_dask.conf import JobConf, Phase
from singa_dask.runtime.units.calendar import Calendar
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.run_state import RunState
from singa_dask.runtime.units.trainer import Trainer
from singa_dask.runtime.units.watch import Watch
from singa_dask.runtime.units.worker_metrics import PHASE_NAMES

__all__ = ["Evaluation"]


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
        self._calendar = Calendar(job)
        self._watch = Watch(job, manifest)
        self._others = range(1, job.cluster.nworkers_per_group)
        # the step before which tests were done
        self._tested = state.step if manifest.get("tested") else -1
        # metrics of the other workers; they may come before this one has its own
        self._measured: list[Message] = []
        channel.on("measured", self._measured.append)

    def begin(self) -> None:
        """End a run that goes on from a checkpoint at once if its metric had stopped improving there."""
        self._state.end_early(self._watch.reason)

    def run_due(self) -> None:
        """Run what is due before this step."""
        if self._state.step == self._tested:
            return
        for phase, n_batches, is_due in self._calendar.tests(self._state.step):
            if phase in self._trainer.nets and is_due:
                self._test(phase, n_batches)
        self._tested = self._state.step

    def run_last(self) -> None:
        """Run every test and validation once more at the end; not after a stop."""
        for phase, n_batches, is_due in self._calendar.tests(self._state.step):
            # a stop that comes later than the last step finds other workers of the group at this
            if phase in self._trainer.nets and (self._state.is_trained or (self._state.reason and not is_due)):
                self._test(phase, n_batches)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint before this step keeps."""
        return {"tested": self._tested == self._state.step, **self._watch.state()}

    def _test(self, phase: Phase, n_batches: int) -> None:
        totals = self._trainer.test(phase, n_batches, self._state.step)
        if PHASE_NAMES[phase] in self._watch.phases and not self._state.reason:
            self._state.end_early(self._judge(PHASE_NAMES[phase], totals))

    def _judge(self, phase: str, totals: Mapping[str, tuple[float, float]]) -> str:
        """Return why the training is to end, empty if it is not, from what all workers of the group have measured."""
        step = self._state.step
        if not self._state.is_first:
            info = {name: list(pair) for name, pair in totals.items()}
            self._channel.send("measured", Address.worker(0, 0), step=step, info=info)
            return str(self._channel.wait_for("judged").info["reason"])
        while len(self._measured) < len(self._others):
            self._channel.receive("metrics of the other workers")
        measured = sorted(self._measured, key=lambda message: message.src)
        self._measured.clear()
        self._watch.add(phase, step, [totals, *(message.info for message in measured)])
        for other in self._others:
            self._channel.send("judged", Address.worker(0, other), info={"reason": self._watch.reason})
        return self._watch.reason
