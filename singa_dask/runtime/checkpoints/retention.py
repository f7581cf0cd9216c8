"""Retention: delete old checkpoints of a run."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from contextlib import suppress

from singa_dask import fs
from singa_dask.conf.metrics import KeepConf, is_less_better
from singa_dask.errors import CheckpointError, SingaError
from singa_dask.runtime.checkpoints.author import NOBODY, Author
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, step_url
from singa_dask.runtime.checkpoints.lookup import best_step
from singa_dask.runtime.checkpoints.manifest import MANIFEST, incarnation_of

logger = logging.getLogger(__name__)


class Retention:
    """Deletes old checkpoints of a run.

    Parameters
    ----------
    directory : str
        URL of the directory that contains the ``step-<n>`` directories.
    conf : KeepConf or None
        The job's ``keep_checkpoints``; None keeps all complete checkpoints.
    restores_best : bool
        Whether to keep the best checkpoint by the metric of ``early_stopping``, too.
    author : Author
        Identifies the job that deletes.
    """

    def __init__(
        self, directory: str, conf: KeepConf | None, restores_best: bool = False, author: Author = NOBODY
    ) -> None:
        self._directory = directory
        self._author = author
        self._restores_best = restores_best
        self._all = conf is None
        self._conf = conf = conf or KeepConf()
        self._sign = -1.0 if is_less_better(conf.metric, conf.mode) else 1.0
        # step of a complete checkpoint -> (value of its metric, step of the test); None if it lacks the metric
        self._values: dict[int, tuple[float, int] | None] = {}

    def tidy(self, step: int, files: Collection[str], pending: Collection[int] = (), last: bool = False) -> None:
        """Delete older checkpoints, once the checkpoint of ``step`` is complete.

        Incomplete older checkpoints are deleted, too. Later checkpoints, and files of newer incarnations, are kept.

        Parameters
        ----------
        step : int
            Step of the complete checkpoint.
        files : collection of str
            Files of this checkpoint. Other files in its directory are deleted.
        pending : collection of int
            Steps of checkpoints that are still being written. These checkpoints are kept.
        last : bool
            Whether this is the last checkpoint of the job. If false, the newest checkpoint before ``step`` is kept,
            too: the job restarts from that checkpoint if processes are lost before the scheduler knows of the new one.
        """
        try:
            steps = [int(match[1]) for name in fs.ls(self._directory) if (match := re.fullmatch(r"step-(\d+)", name))]
            older = [other for other in steps if other < step and other not in pending]
            complete = [other for other in older if self._is_complete(other)]
            stays = set(complete if self._all else self._kept([*complete, step]))
            if self._restores_best:
                stays.add(best_step(Checkpoint(step_url(self._directory, step)).manifest))
            stays.update(() if last else sorted(complete)[-1:])
            for other in set(older) - stays:
                self._delete(other)
            url = step_url(self._directory, step)
            for name in set(fs.ls(url)).difference(files, [MANIFEST]):
                if incarnation_of(name) <= self._author.incarnation:
                    self._author.check(url)
                    fs.remove_tree(fs.join(url, name))
        except (OSError, SingaError) as error:
            logger.warning("old checkpoints could not be deleted: %s", error)

    def _is_complete(self, step: int) -> bool:
        if step not in self._values:
            if not fs.exists(fs.join(step_url(self._directory, step), MANIFEST)):
                return False
            self._values[step] = self._value(step)
        return True

    def _value(self, step: int) -> tuple[float, int] | None:
        """Return the value of the metric that ranks a checkpoint, and the step of its test.

        Return None if the checkpoint lacks the metric.
        """
        metric = None
        if self._conf.best:
            with suppress(CheckpointError):
                manifest = Checkpoint(step_url(self._directory, step)).manifest
                metric = manifest.get("metrics", {}).get(self._conf.metric)
        return None if metric is None else (float(metric["value"]), int(metric["step"]))

    def _kept(self, steps: Collection[int]) -> set[int]:
        """Return the steps of the checkpoints to keep: the newest checkpoints, and the best checkpoints.

        Among equally good checkpoints, the oldest is kept. If several checkpoints follow the same test, only the first
        of them can be among the best.
        """
        measured: dict[int, tuple[float, int]] = {}
        for step in sorted(steps):
            if step not in self._values:
                self._values[step] = self._value(step)
            if (metric := self._values[step]) is not None:
                measured.setdefault(metric[1], (-self._sign * metric[0], step))
        best = [step for _, step in sorted(measured.values())[: self._conf.best]]
        return {*sorted(steps)[-self._conf.last :], *best}

    def _delete(self, step: int) -> None:
        """Delete a checkpoint, its manifest first, so that a partly deleted checkpoint counts as incomplete."""
        url = step_url(self._directory, step)
        self._author.check(url)
        fs.remove_tree(fs.join(url, MANIFEST))
        fs.remove_tree(url)
        self._values.pop(step, None)
