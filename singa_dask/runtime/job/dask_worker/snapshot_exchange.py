"""SnapshotExchange: store parts of snapshots on a Dask worker, and exchange them with others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Worker
from distributed.protocol.serialize import to_serialize
from distributed.utils import sync

from singa_dask.errors import LostUnitError
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.snapshots import SnapshotStore
from singa_dask.runtime.job.dask_worker.hosting import Hosting
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import Op
from singa_dask.runtime.job.state.restarts import snapshot_name

logger = logging.getLogger(__name__)

PART_BYTES_PER_S = 20e6


class SnapshotExchange:
    """Stores parts of snapshots on this Dask worker and a second one, and reads them from either.

    Attributes
    ----------
    store : SnapshotStore
        The parts on this Dask worker.
    handlers : dict of str to callable
        Operations for other Dask workers, by name.
    is_leaving : bool
        Whether this Dask worker closes, so that parts get no second copy.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.store = SnapshotStore()
        self.handlers: dict[str, Callable[..., Any]] = {Op.STORE_PART: self.store.put, Op.PART: self._get}
        self.is_leaving = False

    def put(self, hosting: Hosting, step: int, file: str, content: bytes, known: int) -> list[str]:
        """Store a part of a snapshot here and on the buddy; return the Dask workers that now hold it."""
        self.store.put(hosting.job_id, file, step, content, known)
        holders = [self._worker.address]
        if hosting.buddy and not self.is_leaving:
            try:
                facts = {"job_id": hosting.job_id, "step": step, "file": file, "known": known}
                self._call(hosting.buddy, len(content), Op.STORE_PART, content=to_serialize(content), **facts)
                holders.append(hosting.buddy)
            except Exception as error:
                logger.warning("%s has no copy of the snapshot of step %d: %s", hosting.buddy, step, error)
        return holders

    def _call(self, worker: str, n_bytes: int, op: str, **arguments: Any) -> Any:
        """Call the site of another Dask worker, to send or get ``n_bytes`` bytes.

        Threads of units call this method.
        """
        timeout_s = limit("answer") + n_bytes / PART_BYTES_PER_S
        return sync(self._worker.loop, getattr(self._worker.rpc(worker), op), **arguments, callback_timeout=timeout_s)

    def _get(self, job_id: str, file: str) -> Any:
        content = self.store.get(job_id, file)
        return None if content is None else to_serialize(content)

    def start_point(self, hosting: Hosting) -> str | Checkpoint | None:
        """Return what the units of an incarnation start from: the URL of a checkpoint, a snapshot, or None."""
        start = hosting.placement.start
        manifest = start.get("manifest")
        if manifest is None:
            url: str | None = start.get("url")
            return url
        parts = {part["file"]: part for part in (*manifest["parts"], *manifest.get("states", ()))}
        name = snapshot_name(manifest["step"])
        return Checkpoint.from_manifest(manifest, lambda file: self._read(hosting.job_id, file, parts[file]), name)

    def _read(self, job_id: str, file: str, part: Mapping[str, Any]) -> bytes:
        """Return a part of a snapshot, from here or from another Dask worker.

        Threads of units call this method.
        """
        content = self.store.get(job_id, file)
        errors = []
        for holder in part["holders"]:
            if content is not None:
                return content
            if holder != self._worker.address:
                try:
                    content = self._call(holder, part["bytes"], Op.PART, job_id=job_id, file=file)
                except Exception as error:
                    errors.append(f"{holder}: {error}")
        if content is None:
            # its holders are lost, or have replaced it by a newer snapshot, from which the job may restart
            raise LostUnitError(f"{file} of a snapshot of {job_id}: no Dask worker has it any more. {' '.join(errors)}")
        return content
