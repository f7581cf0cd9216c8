"""Check that Dask workers reach a job's run directory, and read the same files."""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from distributed import Client

from singa_dask import fs
from singa_dask.conf import JobConf, Phase
from singa_dask.conf.layer import PHASES
from singa_dask.errors import DataError
from singa_dask.fs.patterns import is_pattern, matches
from singa_dask.layers import LAYERS
from singa_dask.observe.files.run_directory import is_run
from singa_dask.runtime.job.dask_tasks import on_each_worker
from singa_dask.runtime.planning.whole_pass import KEYS
from singa_dask.wording import listed

SHOWN = 3
"""Maximum number of Dask workers that an error names."""
MAX_LISTED, MAX_READ, MAX_PIECES, PIECE_BYTES = 2000, 8, 16, 1 << 16
"""Limits of a comparison: files in a directory (the files of a larger directory are not compared), files to read,
pieces of each file, and bytes of a piece. The pieces are evenly spread over a file, and the files over the
directory."""
KEYS_OF_FILES = ("path", "vocab_path", "mean_file", "std_file")


def input_files(job: JobConf) -> list[str]:
    """Return the paths and URLs of records, vocabularies and means that the nets of a job read."""
    tested = {phase for phase, (freq, steps) in KEYS.items() if 0 not in (getattr(job, freq), getattr(job, steps))}
    phases = {Phase.TRAIN, *tested} if job.trains else {*PHASES.values()}
    inputs = [layer for layer in job.neuralnet.layer if LAYERS.find(layer.type).traits.role == "input"]
    blocks = [block for layer in inputs if any(map(layer.in_phase, phases)) for block in layer.blocks.values()]
    # blocks of a job that came from another process are plain values
    values = [block if isinstance(block, Mapping) else vars(block) for block in blocks]
    return [url for each in values for key in KEYS_OF_FILES if (url := each.get(key))]


def check_seen(client: Client, urls: Iterable[str], workers: Collection[str] | None = None, run_url: str = "") -> None:
    """Check that Dask workers can reach local files of this host, and a run directory on a local disk.

    All Dask workers must read the same files: their names, lengths and some pieces of their content are compared. A
    missing run directory is created. Dask workers that do not answer soon are not checked.

    Parameters
    ----------
    urls : iterable of str
        The files. Only local paths are checked.
    workers : collection of str, optional
        Dask workers to check; by default all.
    run_url : str
        The run directory. An empty string checks no directory.

    Raises
    ------
    DataError
        A Dask worker cannot reach a file or the run directory, the files differ between Dask workers, or the run
        directory cannot be created.
    """
    paths = sorted({url for url in urls if fs.local_path(url) is not None})
    with _marked(run_url) as marker:
        if not (paths or marker):
            return
        ask = on_each_worker(client, sorted(set(workers)) if workers else None)
        asked = ask(partial(_unseen, [*paths, *marker]))
        for address, (host, unseen) in asked.items():
            # a host that does not see the run directory also lacks files beside it, e.g. an estimator's initial values;
            # the error about the run directory below explains both
            beside = [Path(each).parents[1] for each in marker if each in unseen]
            for path in paths:
                if path in unseen and not any(Path(path).is_relative_to(folder) for folder in beside):
                    raise DataError(_explain_file(client, path, f"{path}: the Dask worker {address} on {host}"))
        if blind := _blind(asked):
            raise DataError(
                f"{run_url}: Dask workers do not see this run directory, which is on a disk of {socket.gethostname()}: "
                f"{listed(blind, SHOWN)}. The job was not started, as its checkpoints could not be completed. Choose a "
                "run directory (--run-dir, run_dir= in Python, or cluster.workspace in the job) at a URL that all "
                f"hosts reach, or in a directory that all of them mount.{_without_scheduler(client)}"
            )
        if len(asked) > 1 and paths:
            _check_same(ask(partial(_digests, paths)), paths)


def _check_same(answers: Mapping[str, tuple[str, Mapping[str, str]]], paths: Sequence[str]) -> None:
    """Raise `DataError` if the files at one of ``paths`` differ between Dask workers."""
    for path in paths:
        readers = {known[path]: f"{address} on {host}" for address, (host, known) in sorted(answers.items())}
        readers.pop("", None)
        if len(readers) > 1:
            raise DataError(
                f"{path}: Dask workers read different files at this path: {listed([*readers.values()], SHOWN)}. "
                "Copy the same files to all hosts, or use a URL that all hosts reach."
            )


def blind_workers(client: Client, folder: str) -> list[str]:
    """Return ``ADDRESS on HOST`` of each Dask worker that does not see a directory of this host."""
    with _marked(folder) as marker:
        return _blind(on_each_worker(client)(partial(_unseen, marker)))


def _blind(asked: Mapping[str, tuple[str, list[str]]]) -> list[str]:
    return [f"{address} on {host}" for address, (host, unseen) in sorted(asked.items()) if unseen]


@contextmanager
def _marked(url: str) -> Iterator[list[str]]:
    """Create a run directory, and a marker file with a random name in it during the context.

    The marker distinguishes the directory from a directory with the same path on another host. The context yields a
    list with the path of the marker; the list is empty if ``url`` is not a local path. After an error, a newly created
    directory is removed.
    """
    path = fs.local_path(url) if url else None
    if path is None:
        yield []
        return
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    marker = fs.join(url, f".seen-{secrets.token_hex(8)}")
    try:
        fs.create(marker)
    except (DataError, OSError) as error:
        why = str(error).replace(f"{marker}: ", "")
        raise DataError(f"{url}: the run directory cannot be created: {why}") from error
    try:
        try:
            yield [marker]
        finally:
            fs.remove_tree(marker)
    except DataError:
        with suppress(OSError):  # other programs may have begun to use the directories
            for folder in new:
                folder.rmdir()
        raise


def _explain_file(client: Client, path: str, who: str) -> str:
    if _unseen([path])[1]:
        return f"{who} sees no such file or directory."
    return (
        f"{who} does not see this file, which is on {socket.gethostname()}. Use a URL that all hosts reach, "
        f"or a path in a directory that all of them mount.{_without_scheduler(client)}"
    )


def _without_scheduler(client: Client) -> str:
    """Return advice on how to run without a cluster, if the cluster was chosen by an environment variable."""
    named = os.environ.get("DASK_SCHEDULER_ADDRESS")
    is_this = named is not None and client.scheduler is not None and named == client.scheduler.address
    return " To use no cluster, unset DASK_SCHEDULER_ADDRESS, which names this one." if is_this else ""


def _unseen(paths: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of this host, and the paths and patterns that it cannot reach."""
    unseen = [path for path in paths if not _is_seen(path)]
    for folder in sorted({folder for path in unseen for folder in Path(path).parents}):
        with suppress(OSError):  # an NFS client may cache that a file is missing; opening the folder ends that
            os.scandir(folder).close()
    unseen = [path for path in unseen if not _is_seen(path)]
    return socket.gethostname(), unseen


def _digests(paths: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the name of this host, and for each path a digest of its files, empty if unreadable."""
    digests = dict.fromkeys(paths, "")
    for path in paths:
        with suppress(OSError, DataError):  # the process that reads the file will report the error
            digests[path] = _digest(path)
    return socket.gethostname(), digests


def _digest(path: str) -> str:
    root = fs.local_path(path)
    if root is None or is_run(path):  # a running job may write there
        return ""
    tops = [root] if root.exists() else map(Path, matches(str(root)))
    below = ((top, each) for top in tops for each in (top.rglob("*") if top.is_dir() else [top]))
    entries = list(itertools.islice(below, MAX_LISTED + 1))
    if len(entries) > MAX_LISTED:
        return ""
    files = sorted(each for top, each in entries if each.is_file() and not _is_of_a_host(each.relative_to(top)))
    digest = hashlib.blake2b(repr([(str(each), each.stat().st_size) for each in files]).encode())
    for each in files[:: -(-len(files) // MAX_READ) or 1]:
        with each.open("rb") as file:
            last = max(os.fstat(file.fileno()).st_size - PIECE_BYTES, 0)
            for offset in dict.fromkeys(last * i // (MAX_PIECES - 1) for i in range(MAX_PIECES)):
                file.seek(offset)
                digest.update(file.read(PIECE_BYTES))
    return digest.hexdigest()


def _is_of_a_host(name: Path) -> bool:
    """Return whether a file is no data: hidden, or the lock file of LMDB."""
    return name.name == "lock.mdb" or any(part.startswith((".", "_")) for part in name.parts)


def _is_seen(path: str) -> bool:
    return fs.exists(path) or (is_pattern(path) and bool(matches(path)))
