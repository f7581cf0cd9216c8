"""The manifest of a checkpoint: JSON that ends with a checksum of itself, and has those of all files.

Manifests of older versions have no checksum of their own.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import posixpath
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from singa_dask import fs
from singa_dask.errors import CheckpointError, DataError, TakenOverError
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.ownership import Ownership
from singa_dask.fs.retry import patiently

# older directories are deleted when another one is made
KEPT_FOR_S = 30 * 86400.0
# keys of the description of a file that is not where its checkpoint is
_KEPT_AT, _WHY_KEPT = "kept_at", "why_kept"


def name_of_life(file: str, life: int) -> str:
    """Return the name of a file in a life of the job, e.g. ``part-0-of-2.life-3.safetensors``; life 0 is not named."""
    stem, _, suffix = file.rpartition(".")
    return f"{stem}.life-{life}.{suffix}" if life else file


def life_of(file: str) -> int:
    """Return the life of the job in which a file was written, by its name."""
    match = re.search(r"\.life-(\d+)\.", file)
    return int(match[1]) if match else 0


class Author(NamedTuple):
    """Who writes checkpoints: a run, and the life of its job. A process can sleep, and wake up after both are over."""

    job_id: str = ""
    life: int = 0

    def check(self, url: str, file: str = "") -> None:
        """Check that a file of a step is still this author's to write.

        Parameters
        ----------
        url : str
            Of a step in a run directory.
        file : str
            Name of a part; by default the manifest. Processes are replaced one by one, so each part has its own life.

        Raises
        ------
        TakenOverError
            A later run has the directory, or a newer life of the job has written the same of this step, or of the last
            complete one.
        """
        if not self.job_id:
            return
        directory = posixpath.dirname(url)
        Ownership(posixpath.dirname(directory), self.job_id).check()
        # the step itself may be gone by now: whoever wrote it keeps the newest ones only
        for step in {url, *_last_complete(directory)}:
            manifest = fs.join(step, MANIFEST)
            with suppress(CheckpointError, DataError):  # one that cannot be read says nothing
                there = decode_manifest(manifest, fs.read_bytes(manifest)) if fs.exists(manifest) else {}
                author, life = there.get("author"), _life_in(there, file)
                if author and author[0] == self.job_id and life > self.life:
                    raise TakenOverError(f"{step}: written by life {life} of the job; this is life {self.life}.")


def _life_in(manifest: Mapping[str, Any], file: str) -> int:
    """Return in which life of its job a manifest, or the part of it that a file is, was written; -1 if it was not."""
    if not file:
        return int(manifest.get("author", ("", -1))[1])
    files = [each["file"] for each in (*manifest.get("parts", ()), *manifest.get("states", ()))]
    return max((life_of(each) for each in files if _index_of(each) == _index_of(file)), default=-1)


def _last_complete(directory: str) -> list[str]:
    """Return the URL of the last complete step in a directory of checkpoints; none if there is none."""
    steps = [name for name in (fs.ls(directory) if fs.is_dir(directory) else ()) if re.fullmatch(r"step-\d+", name)]
    urls = [fs.join(directory, name) for name in sorted(steps, key=lambda name: int(name[5:]), reverse=True)]
    return list(itertools.islice((url for url in urls if fs.exists(fs.join(url, MANIFEST))), 1))


NOBODY = Author()
"""Of checkpoints that no job writes."""


def write_file(
    url: str, file: str, chunks: Sequence[bytes | memoryview], keep: bool = False, author: Author = NOBODY
) -> dict[str, Any]:
    """Write a file of a checkpoint, without a copy of it in memory; with ``keep`` to a local directory if that fails.

    Parameters
    ----------
    url : str
        Of the step.
    file : str
    chunks : sequence of bytes or memoryview
        Its content.
    keep : bool
    author : Author

    Returns
    -------
    dict
        Its ``file`` name, length in ``bytes`` and ``sha256``; if it is kept, ``kept_at``, host and directory, and
        ``why_kept``, the error.
    """
    file, digest = name_of_life(file, author.life), hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    facts = {"file": file, "bytes": sum(map(len, chunks)), "sha256": digest.hexdigest()}
    try:
        fs.write_atomic(fs.join(url, file), chunks, check=partial(author.check, url, file))
    except DataError as error:
        if not keep:
            raise
        facts |= {_KEPT_AT: keep_file(url, file, chunks, str(error)), _WHY_KEPT: str(error)}
    return facts


def keep_file(url: str, file: str, content: bytes | Sequence[bytes | memoryview], why: str) -> str:
    """Write a file of a checkpoint to a local directory; return host and directory.

    Raises
    ------
    CheckpointError
        That is not possible either; ``why`` is the reason to try it.
    """
    host = socket.gethostname()
    try:
        folder = _folder(url)
        fs.write_atomic(os.path.join(folder, file), content)
    except (OSError, DataError) as error:
        raise CheckpointError(f"{why} Nor could {file} be kept on {host}: {error}") from error
    return f"{host}:{folder}"


def _folder(url: str) -> str:
    """Return a directory on this host, which nobody else can write, for files of a checkpoint."""
    ours = os.path.join(tempfile.gettempdir(), f"singa-dask-kept-{os.getuid()}")
    os.makedirs(ours, 0o700, exist_ok=True)
    status = os.lstat(ours)
    if status.st_uid != os.getuid() or status.st_mode & 0o77:
        raise OSError(f"{ours} belongs to others.")
    _remove_old(ours)
    return os.path.join(ours, hashlib.sha256(os.fsencode(url)).hexdigest()[:12], posixpath.basename(url))


def _remove_old(ours: str) -> None:
    """Delete the files of runs for which nothing was kept in the last 30 days."""
    with os.scandir(ours) as entries:
        runs = [entry.path for entry in entries]
    for run in runs:
        last_change = max(os.lstat(folder).st_mtime for folder, _, _ in os.walk(run))
        if time.time() - last_change > KEPT_FOR_S:
            shutil.rmtree(run, ignore_errors=True)


def _without_places(files: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the descriptions of files for a manifest."""
    return [{key: value for key, value in each.items() if key not in (_KEPT_AT, _WHY_KEPT)} for each in files]


FORMAT = "singa-dask checkpoint 1"
MANIFEST = "manifest.json"


def encode_manifest(parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest.

    Parameters
    ----------
    parts : sequence of dict
        From `write_part`.
    facts : dict
        ``job``, ``step``, ``seed``, ``groups``, ``deals``, and ``params``: {name: {shape, dtype}}, with ``parts`` {key:
        [axis, start, stop]} if servers have parts of a param; ``class_names``: {input layer: names} if known;
        ``tables``: {input layer: facts of its columns}, see `TableFacts.to_dict`; ``scalings``: {input layer: mean and
        std}, see `Scaling.to_dict`; ``cut``: whether it is a consistent cut, of several worker groups, see
        `what_is_no_cut`.
    """
    body = json.dumps(make_manifest(parts, facts), indent=1).encode()
    return body.removesuffix(b"\n}") + _checksum_lines(body)


def make_manifest(parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest, see `encode_manifest`, without the checksum that its bytes have."""
    # "checksum" says that there has to be one, should its own key be damaged
    return {"format": FORMAT, "checksum": "sha256", **facts, "parts": list(parts)}


def what_is_no_cut(parts: Sequence[Mapping[str, Any]], groups: Mapping[str, Mapping[str, Any]]) -> str:
    """Return why a checkpoint of several worker groups is no consistent cut; empty if it is one.

    It is, if all values have of each group the gradients of just the steps before its position.
    """
    for tensor in _trained(parts):
        for group, position in groups.items():
            n_steps = _newest_step_of(tensor, group) + 1
            if n_steps != position["step"]:
                return (
                    f"not a consistent cut: worker group {group} is before step {position['step']}, "
                    f"{tensor['key']} has its gradients before step {n_steps}."
                )
    return ""


def newest_step(parts: Sequence[Mapping[str, Any]], group: str) -> int:
    """Return the newest step of a worker group that all values have the gradient of; -1 if none."""
    return min((_newest_step_of(tensor, group) for tensor in _trained(parts)), default=-1)


def _newest_step_of(tensor: Mapping[str, Any], group: str) -> int:
    return int(tensor.get("applied", {}).get(group, -1))


def _trained(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the values of the params of which any has gradients of any worker group."""
    values = [tensor for part in parts for tensor in part["tensors"] if tensor["what"] == "value"]
    trained = {tensor["param"] for tensor in values if tensor.get("applied")}
    return [tensor for tensor in values if tensor["param"] in trained]


def _checksum_lines(body: bytes) -> bytes:
    """Return the end of a manifest: the checksum of the manifest without it, as its last key."""
    return f',\n "sha256": "{hashlib.sha256(body).hexdigest()}"\n}}'.encode()


def decode_manifest(url: str, content: bytes) -> dict[str, Any]:
    """Return the content of a manifest.

    Raises
    ------
    CheckpointError
        It is damaged, or of another format.
    """
    try:
        manifest = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"{url}: damaged: {error}.") from error
    if not isinstance(manifest, dict):
        raise CheckpointError(f"{url}: damaged: expected a JSON object.")
    if "checksum" in manifest or "sha256" in manifest:
        end = len(_checksum_lines(b""))
        if content[-end:] != _checksum_lines(content[:-end] + b"\n}"):
            raise CheckpointError(f"{url}: damaged: its checksum is not the one in it.")
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{url}: format {manifest.get('format')!r} is not known. This version reads {FORMAT!r}.")
    return manifest


def write_manifest(
    url: str,
    parts: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    keep: bool = False,
    author: Author = NOBODY,
) -> dict[str, str]:
    """Write the manifest, which completes a checkpoint; keep it on this host if other files are kept.

    Parameters
    ----------
    url : str
    parts, facts
        See `encode_manifest`.
    keep : bool
        Whether to keep the manifest on this host if it cannot be written.
    author : Author

    Returns
    -------
    dict of str to str
        Where files of the checkpoint are kept, and why; empty if it is complete.
    """
    files = [*parts, *facts.get("states", ())]
    places = {file[_KEPT_AT]: file[_WHY_KEPT] for file in files if _KEPT_AT in file}
    facts = {**facts, "states": _without_places(facts.get("states", ()))}
    if author.job_id:
        facts["author"] = list(author)
    content = encode_manifest(_without_places(parts), facts)
    if not places:
        try:
            author.check(url)  # first: a successor may have deleted the files
            _check_seen(url, files)
            fs.write_atomic(fs.join(url, MANIFEST), content, check=partial(author.check, url))
            return {}
        except DataError as error:
            if not keep:
                raise
            return {keep_file(url, MANIFEST, content, str(error)): str(error)}
    why = next(iter(places.values()))
    return {keep_file(url, MANIFEST, content, why): why, **places}


def _check_seen(url: str, files: Sequence[Mapping[str, Any]]) -> None:
    """Raise a `CheckpointError` if a file of a checkpoint is not at its URL."""
    for each in files:
        if not patiently(partial(fs.exists, fs.join(url, each["file"]))):
            raise CheckpointError(
                f"{url}: {each['file']} was written by another process but cannot be seen from here. "
                "Give the run a directory that every process can reach (--run-dir with a shared path or a URL)."
            )


# Snapshots: checkpoints in the memory of processes, for a new life of a job.
#
# A snapshot has the same parts and the same manifest as a checkpoint, but no file. Each part is kept by the process
# of its server, and by others; the manifest says by which.


Keep = Callable[[int, str, bytes, int], list[str]]
"""(step, file, content, known) -> the addresses of the processes that keep the part from now on.

``known`` is the step of the newest snapshot that the scheduler has, whose part stays."""


class Part(NamedTuple):
    """A part of the snapshot of a step."""

    step: int
    content: bytes


class SnapshotStore:
    """Parts of snapshots that one process keeps, for any number of jobs. Thread-safe.

    Of each part at most two steps stay: the newest, which may belong to a snapshot that is not complete, and that of
    the newest snapshot that the scheduler has, from which the job starts again.

    Attributes
    ----------
    jobs : dict of str to dict
        By job: the parts by name.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Part]] = {}
        self._lock = threading.Lock()

    def put(self, job_id: str, file: str, step: int, content: bytes, known: int) -> None:
        """Keep a part; drop those of other steps but that of the step ``known``.

        A part is not kept if there is one of a newer life: its process was replaced, and does not know it yet.

        Parameters
        ----------
        job_id : str
        file : str
            Name of the part in the manifest, which no other part of the job has: it has the step and the life.
        step : int
        content : bytes
        known : int
        """
        with self._lock:
            parts, index = self.jobs.get(job_id, {}), _index_of(file)
            if any(life_of(each) > life_of(file) for each in parts if _index_of(each) == index):
                return
            left = {each: part for each, part in parts.items() if part.step == known or _index_of(each) != index}
            self.jobs[job_id] = {**left, file: Part(step, content)}

    def get(self, job_id: str, file: str) -> bytes | None:
        """Return the content of a part; None if it is not here."""
        with self._lock:
            part = self.jobs.get(job_id, {}).get(file)
        return None if part is None else part.content

    def forget(self, job_id: str) -> None:
        """Drop all parts of a job."""
        with self._lock:
            self.jobs.pop(job_id, None)


def _index_of(file: str) -> str:
    """Return what the files of one part have in common, in all steps and lives: ``part-<i>-of-<k>``."""
    return file.rpartition("/")[2].partition(".")[0]


def keep_in_memory(
    keep: Keep, step: int, known: int, file: str, chunks: Sequence[bytes | memoryview], life: int = 0
) -> dict[str, Any]:
    """Keep a file of a snapshot in memory.

    Returns
    -------
    dict
        Its ``file`` name, which has the step, length in ``bytes`` and ``crc32c``; ``holders``, the addresses of the
        processes that keep it; and ``seconds``, the time that this took.
    """
    started, content, file = time.perf_counter(), b"".join(chunks), f"step-{step}/{name_of_life(file, life)}"
    facts = {"file": file, "bytes": len(content), "crc32c": checksum_of(content)}
    return {**facts, "holders": keep(step, file, content, known), "seconds": time.perf_counter() - started}
