"""InitialState: start a job with new values, with values of a run, or from where a run stopped."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.comm.message import Address
from singa_dask.comm.slices import ParamSlice
from singa_dask.conf import InitConf, JobConf, Phase
from singa_dask.errors import CheckpointError, ConfigError, DataError, Problem
from singa_dask.inputs import StoreInput
from singa_dask.layers import Param
from singa_dask.net import NeuralNet, whole_params
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.checkpoints.layer_states import read_states, restore_states
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.layout import Rejoin
from singa_dask.runtime.planning.nets import Nets, phase_name
from singa_dask.shown import plural
from singa_dask.training import initial_values

logger = logging.getLogger(__name__)


class InitialState:
    """The first step, values, updater state and reading positions (cursors) of a job.

    Parameters
    ----------
    resume : str or Checkpoint, optional
        Checkpoint to continue from, open or as a URL.
    init_from : sequence of str
        URLs of checkpoints from which initial values are read by the names of params. If several checkpoints contain a
        param, the values come from the last of them. Ignored with ``resume``. The default is the job's
        ``checkpoint_path``.
    rejoin : Rejoin, optional
        Set if this process joins running processes, which are ahead of ``resume``.
    recovers : bool
        Whether the job continues after a failure, from a checkpoint that it has itself written.
    """

    def __init__(
        self,
        job: JobConf,
        resume: str | Checkpoint | None = None,
        init_from: Sequence[str] = (),
        rejoin: Rejoin | None = None,
        recovers: bool = False,
    ) -> None:
        self.job = job
        self.rejoin = rejoin
        self._recovers = recovers or rejoin is not None
        self.resumed = Checkpoint(resume) if isinstance(resume, str) else resume
        self.step = self.resumed.step if self.resumed else 0
        if self.resumed and self.resumed.manifest["seed"] != job.seed:
            raise CheckpointError(
                f"{self.resumed.url}: made with seed {self.resumed.manifest['seed']}, but the job has seed {job.seed}. "
                "Set the same seed to resume exactly, or use --init-from to take only the values."
            )
        self._initial = InitialValues(job, init_from)

    def step_of(self, group: int) -> int:
        """Return the first step of a worker group."""
        if self.rejoin and group in self.rejoin.steps:
            return self.rejoin.steps[group]
        return self._resumed_step(group)

    def _resumed_step(self, group: int) -> int:
        """Return the step of a worker group in the resumed checkpoint; 0 for a new run."""
        if self.resumed and group in self.resumed.groups:
            return int(self.resumed.groups[group]["step"])
        return self.step

    def window_of(self, worker: Address, plan: JobPlan) -> Mapping[str, Any]:
        """Return the metrics that a worker had measured but not reported when the run stopped.

        The result is empty if the job now has other numbers of workers or groups, which divide the records differently.
        """
        cluster, group = plan.layout.cluster, worker.group
        if self.resumed is None or self.step_of(group) != self._resumed_step(group):
            return {}
        if (len(self.resumed.groups), self.resumed.manifest.get("workers")) != (
            cluster.nworker_groups, cluster.nworkers_per_group
        ):  # fmt: skip
            return {}
        window: Mapping[str, Any] = self.resumed.groups[group].get("windows", {}).get(str(worker.id), {})
        return window

    def manifest_of(self, group: int) -> dict[str, Any]:
        """Return the manifest of the checkpoint from which a worker group continues; empty for a new run."""
        if self.resumed is None:
            return {}
        # "tested" is about the step of the checkpoint; at another step, the tests have not run yet
        is_there = self.step_of(group) == self._resumed_step(group)
        return {**self.resumed.manifest, "tested": is_there and self.resumed.manifest.get("tested", False)}

    def check(self, net: NeuralNet) -> None:
        """Check that every param has initial values of the right shape, from a checkpoint or an initialiser.

        Raises
        ------
        CheckpointError
            The checkpoint does not exist, or belongs to another net.
        ConfigError
            Params have no initial values. The error lists all of them.
        """
        problems = []
        owners = whole_params(net.logical)
        if not self.resumed:
            self._initial.check((owner.name, owner.whole_shape) for owner in owners)
        for owner in owners:
            if self.resumed:
                shape = self.resumed.shape(owner.name)
                if math.prod(shape) != math.prod(owner.whole_shape):
                    shapes = f"has shape {shape}, but the net needs {owner.whole_shape}"
                    raise CheckpointError(f"param {owner.name!r}: {self.resumed.url} {shapes}.")
            elif owner.name not in self._initial and owner.conf.init is None and not self._has_own_values(owner):
                message = (
                    f"param {owner.name!r} has no init, and no checkpoint gives its values. Expected an init block, "
                    "e.g. init: {type: Gaussian, std: 0.01}, or a checkpoint (checkpoint_path, --init-from)."
                )
                problems.append(Problem(net.param_path(owner.name), message))
        if problems:
            raise ConfigError(problems)
        self._check_scalings(net)

    def _has_own_values(self, owner: Param) -> bool:
        """Return whether the layer of a param supplies its initial values, as it may if no checkpoint is used."""
        return not self._initial.has_params and owner.initial is not None and not isinstance(owner.initial, InitConf)

    def _check_scalings(self, net: NeuralNet) -> None:
        """Raise a CheckpointError if the net and the checkpoint standardise records in different ways."""
        known = net.context.knowledge.known.scalings
        for layer in net.all_layers:
            if isinstance(layer, StoreInput) and (self.resumed or layer.conf_name in known):
                try:
                    layer.normalisation.find_scaling()
                except DataError as error:
                    url = self.resumed.url if self.resumed else ", ".join(self._initial.urls)
                    raise CheckpointError(f"{url}: {error}") from None

    def check_files(self, files: Mapping[str, str]) -> None:
        """Warn if a remote file was replaced since the checkpoint.

        Raise DataError if the job recovers from a failure.

        ``files`` has the version of each file by its URL.
        """
        known: Mapping[str, str] = self.resumed.manifest.get("files", {}) if self.resumed else {}
        replaced = [url for url, version in files.items() if known.get(url, version) != version]
        if self.resumed is None or not replaced:
            return
        url, more = replaced[0], f", and {plural(len(replaced) - 1, 'other')}" if replaced[1:] else ""
        what = f"{url}{more}: replaced since {self.resumed.url} was made: version {files[url]}, before {known[url]}."
        if self._recovers:
            raise DataError(f"{what} To continue with the new file, resume the run.")
        logger.warning("%s The run continues with the new file.", what)

    def restore_knowledge(self, net: NeuralNet) -> None:
        """Pass class names, tables, encodings and scalings of a run to the training net.

        The facts come from the resumed run or the initial checkpoints. Class names of initial checkpoints are used only
        if all values come from checkpoints, so that labels keep their meaning. Scalings of records are always used,
        because the params were trained on scaled records.
        """
        knowledge = net.context.knowledge
        if self.resumed:
            knowledge.update(self.resumed.learned)
            return
        is_complete = all(owner.name in self._initial for owner in whole_params(net.logical))
        learned = self._initial.learned()
        if is_complete:
            knowledge.known.scalings.update(learned.scalings)
        knowledge.known.encodings.update(self._initial.encodings())
        knowledge.inherited = learned if is_complete else learned._replace(class_names={}, tables={})

    def values(self, param: Param) -> tuple[np.ndarray, int]:
        """Return the initial values of a param (or of its shard), and the version of these values."""
        whole, version = self._whole(param)
        whole = whole.reshape(param.whole_shape)
        return param.shard.of(whole) if param.shard else whole, version

    def _whole(self, param: Param) -> tuple[np.ndarray, int]:
        if self.resumed:
            return self.resumed.values(param.name), self.resumed.version(param.name)
        if param.name in self._initial:
            values, version = self._initial.get(param.name, param.whole_shape)
            return values, 0 if self.job.reset_param_version else version
        init = param.initial if param.conf.init is None else param.conf.init
        assert init is not None
        return initial_values(init, param.name, param.whole_shape, self.job.seed, param.dtype), 0

    def updater_state(self, plan: JobPlan, what: str, piece: ParamSlice) -> np.ndarray | None:
        """Return the array ``what`` of a slice's updater state in the checkpoint; None if it is missing."""
        if self.resumed is None:
            return None
        name, shard = plan.owners[piece.param], plan.shards[piece.param]
        if shard is None:
            return self.resumed.read(name, what, piece.start, piece.stop)
        whole = self.resumed.whole(name, what)
        return None if whole is None else shard.of(whole).reshape(-1)[piece.start : piece.stop]

    def applied(self, plan: JobPlan, piece: ParamSlice) -> dict[int, int]:
        """Return, for each worker group, the newest step whose gradient was applied to a slice."""
        if self.resumed is None:
            return {}
        n_groups = plan.layout.cluster.nworker_groups
        if len(self.resumed.groups) != n_groups:
            return {group: self._resumed_step(group) - 1 for group in range(n_groups)}
        return self.resumed.applied(plan.names[piece.param], piece.start, piece.stop)

    def release(self) -> None:
        """Free the memory of loaded values. Call this method once a unit has started."""
        if self.resumed:
            self.resumed.release()
        self._initial.release()

    def seek(self, nets: Nets, group: int, n_groups: int) -> None:
        """Restore the positions of all readers and the states of layers.

        If the group joins a running job, the readers of the training net then skip the records of the steps between the
        checkpoint and the group's first step.
        """
        n_ahead = self.step_of(group) - self._seek(nets, group, n_groups)
        if n_ahead:
            nets[Phase.TRAIN].advance(n_ahead)

    def _seek(self, nets: Nets, group: int, n_groups: int) -> int:
        """Restore readers and layer states.

        Return the step at which the readers of the training net now stand.
        """
        if self.resumed is None:
            return self.step
        if len(self.resumed.groups) != n_groups:
            logger.warning(
                "%s: had %d worker groups, the job has %d: their shares of the records differ, "
                "so reading starts from the beginning.", self.resumed.url, len(self.resumed.groups), n_groups
            )  # fmt: skip
            return self._resumed_step(group)
        cursors = self.resumed.groups[group]["cursors"]
        for name, cursor in cursors.items():
            phase = Phase[name.upper()]
            if phase in nets and phase not in nets.passes:
                nets[phase].seek(cursor)
        self._restore_states(self.resumed, nets, group)
        return self._resumed_step(group) if cursors else 0

    def _restore_states(self, resumed: Checkpoint, nets: Mapping[Phase, NeuralNet], group: int) -> None:
        """Restore the states of layers. If the states do not fit, warn and leave the layers reset."""
        layers = {layer["layer"] for part in resumed.manifest.get("states", ()) for layer in part["layers"]}
        if not layers:
            return
        context, n_workers = nets[Phase.TRAIN].context, resumed.manifest.get("workers")
        step, stopped_at = self.step_of(group), self._resumed_step(group)
        why = ""
        if step != stopped_at:
            why = f"{resumed.url}: worker group {group} was at step {stopped_at}, but continues at step {step}"
        elif n_workers != context.n_workers:
            why = f"{resumed.url}: a group had {n_workers} workers, but has {context.n_workers} in the job"
        else:
            try:
                states = read_states(resumed, group, context.worker)
            except CheckpointError as error:
                if self.rejoin is None:
                    raise
                why = str(error).removesuffix(".")
            else:
                layers = set(restore_states({phase_name(phase): net for phase, net in nets.items()}, states))
                why = f"{resumed.url}: the checkpoint has other shapes, or another partition" if layers else ""
        if why:
            logger.warning("%s: the states of %s are reset.", why, ", ".join(sorted(layers)))
