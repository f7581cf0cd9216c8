"""Saving: save the parts of checkpoints and snapshots of one process in background threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from singa_dask.errors import CheckpointError, text_of
from singa_dask.fs.daemon_threads import DaemonThreads
from singa_dask.runtime.checkpoints.author import Author, write_file
from singa_dask.runtime.checkpoints.checkpoint import Save
from singa_dask.runtime.checkpoints.snapshots import StorePart, store_in_memory


class Saving:
    """Saves what the units of one process contribute to checkpoints and snapshots.

    One thread writes files, another one stores parts of snapshots, so that snapshots do not wait for a file system.

    Parameters
    ----------
    url : str
        Directory that contains the ``step-<n>`` directories of checkpoints.
    author : Author
        Identifies this run in the files that it writes.
    store_part : StorePart or None
        Stores parts of snapshots; None if the job takes no snapshots.

    Attributes
    ----------
    writer : DaemonThreads
        The thread that writes files. Its calls may wait minutes for file systems.
    """

    def __init__(self, process: int, url: str, author: Author, store_part: StorePart | None) -> None:
        self.process, self.url, self.author, self.store_part = process, url, author, store_part
        self.writer = DaemonThreads(1, f"checkpoint-{process}")
        self._storer = DaemonThreads(1, f"snapshot-{process}")

    def later(
        self,
        step: int,
        where: Mapping[str, Any],
        write: Callable[[Save], dict[str, Any]],
        then: Callable[[dict[str, Any]], None],
    ) -> None:
        """Save a part of a checkpoint or snapshot in the background.

        ``write`` is called with a `Save` for the destination ``where``: a ``url``, or the memory of Dask workers. Then
        ``then`` is called with the result of ``write``, which describes the part, or with an ``error``.
        """

        def run() -> None:
            try:
                result = write(self._save_of(step, where))
            except Exception as error:  # send the error to the worker that requested the part
                result = {"error": text_of(error)}
            then(result)

        (self.writer if "url" in where else self._storer).submit(run)

    def _save_of(self, step: int, where: Mapping[str, Any]) -> Save:
        if "url" in where:
            return partial(write_file, where["url"], rescue=where.get("rescue", False), author=self.author)
        if self.store_part is None:
            raise CheckpointError(f"process {self.process} has no place for snapshots. Expected one in every process.")
        return partial(store_in_memory, self.store_part, step, where["snapshot"], incarnation=self.author.incarnation)

    def close(self) -> None:
        """End the threads."""
        self.writer.close()
        self._storer.close()
