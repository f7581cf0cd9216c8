"""Serve part files to other hosts, and read part files in jobs.

Part files are the files of a dataset that Dask workers wrote on their hosts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Worker, get_worker
from distributed.protocol.serialize import to_serialize
from distributed.utils import sync

from singa_dask.errors import ClusterError, DataError
from singa_dask.fs.host_files import Catalog, PartFile, mounted
from singa_dask.fs.part_folders import PartFolders
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import SITE, Op
from singa_dask.runtime.job.patience import Patience


def part_folders(worker: Worker) -> PartFolders:
    """Return the directories for part files on this host, in Dask's scratch space."""
    return PartFolders(Path(worker.local_directory).parent / "singa-dask-parts")


class PartFiles:
    """Serves the part files of this host, and reads part files of other hosts.

    Attributes
    ----------
    handlers : dict of str to callable
        Handlers to register with the Dask worker, by operation.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._folders = part_folders(worker)
        self._threads = ThreadPoolExecutor(4, thread_name_prefix=f"{SITE}-site-files")
        # Dask worker that wrote files -> Dask workers on its host that serve these files
        self._servers: dict[str, list[str]] = {}
        self.handlers: dict[str, Callable[..., Any]] = {Op.READ: self._read, Op.DROP: self._drop}

    def close(self) -> None:
        """Stop serving."""
        self._threads.shutdown(wait=False)

    @contextlib.contextmanager
    def reading(self, messages: Sequence[Sequence[Any]]) -> Iterator[None]:
        """Make the files of catalogs readable in this process, during the context.

        ``messages`` are the catalogs as plain values. Ranges of files of other hosts are cached beside the files of
        this host, and deleted with these files.
        """
        catalogs = [Catalog.of(message) for message in messages]
        for catalog in catalogs:
            self._folders.hold(catalog.token)
        with mounted(catalogs, self.fetch, lambda catalog: self._folders.path(catalog.token, "cache")):
            yield

    async def _read(self, token: str, name: str, offset: int, length: int) -> dict[str, Any]:
        """Return a range of a file of this host as ``data``, or an ``error``."""
        try:
            data = await self._in_thread(self._folders.read, token, name, offset, length)
        except (OSError, ValueError) as error:
            return {"error": getattr(error, "strerror", None) or str(error)}
        return {"data": to_serialize(data)}

    async def _drop(self, tokens: Sequence[str]) -> None:
        """Delete the files of catalogs on this host."""
        for token in tokens:
            await self._in_thread(self._folders.drop, token)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._worker.loop.run_in_executor(self._threads, function, *arguments)

    def fetch(self, catalog: Catalog, file: PartFile, offset: int, length: int) -> bytes:
        """Read a range of a file of another host, through a Dask worker on that host.

        Raises
        ------
        DataError
            The file is gone, or no Dask worker on its host answers. Attempts are repeated for ``limit("answer")``.
        """
        try:
            attempt = partial(self._attempt, catalog, file, offset, length)
            return Patience(limit("answer")).until(attempt)
        except ClusterError as error:
            raise DataError(f"{error} The data of a lost host are lost. Start the job again.") from None

    def _attempt(self, catalog: Catalog, file: PartFile, offset: int, length: int) -> bytes:
        """Ask the Dask workers of a host, one after the other, for a range of a file, until one sends it.

        Raises
        ------
        DataError
            All these Dask workers answer that they cannot read the file.
        ClusterError
            Some of these Dask workers do not answer, or the host has no Dask worker.
        """
        where = f"dask://{catalog.token}/{file.name}: a part of dataset {catalog.dataset!r} on host {file.host}"
        refused = why = ""
        servers: Sequence[str] = self._servers.get(file.worker, ())
        try:
            servers = servers or self._call(self._worker.scheduler, "servers", Op.SERVERS, worker=file.worker)
        except Exception as error:
            why = f"the scheduler: {error!r}"
        asked = {"token": catalog.token, "name": file.name, "offset": offset, "length": length}
        for server in servers:
            try:
                answer: Mapping[str, Any] = self._call(self._worker.rpc(server), "part", Op.READ, **asked)
            except Exception as error:  # the Dask worker is gone, or does not answer
                why = f"{server}: {error!r}"
                continue
            if "data" in answer:
                self._servers[file.worker] = [server, *(other for other in servers if other != server)]
                return bytes(answer["data"])
            refused = answer["error"]
        self._servers.pop(file.worker, None)
        if refused and not why:
            raise DataError(f"{where} cannot be read at {file.path}: {refused}. Start the job again.")
        raise ClusterError(f"{where}, where no Dask worker answers ({why or 'there is none'}).")

    def _call(self, server: Any, limit_name: str, op: str, **arguments: Any) -> Any:
        return sync(self._worker.loop, getattr(server, op), **arguments, callback_timeout=limit(limit_name))


@contextlib.contextmanager
def reading(messages: Sequence[Sequence[Any]]) -> Iterator[None]:
    """Make the files of catalogs readable in a Dask task, during the context; see `PartFiles.reading`."""
    if not messages:
        yield
        return
    files = PartFiles(get_worker())
    try:
        with files.reading(messages):
            yield
    finally:
        files.close()
