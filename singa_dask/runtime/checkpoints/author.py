"""Decide which process may write a file of a checkpoint, and write it.

A process can be suspended while its job restarts without it. When it wakes up, it must not replace newer files.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import posixpath
import re
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

from singa_dask import fs
from singa_dask.errors import CheckpointError, DataError, TakenOverError
from singa_dask.fs.ownership import Ownership
from singa_dask.fs.retry import patiently
from singa_dask.runtime.checkpoints.manifest import (
    MANIFEST,
    decode_manifest,
    encode_manifest,
    incarnation_name,
    incarnation_of,
    index_of,
)

# keys in the description of a file that was written to a host's own disk instead of the checkpoint's URL
_KEPT_AT, _WHY_KEPT = "kept_at", "why_kept"


class Author(NamedTuple):
    """Identifies the writer of checkpoints: a run of a job, and its incarnation (number of the restart)."""

    job_id: str = ""
    incarnation: int = 0

    def check(self, url: str, file: str = "") -> None:
        """Check that this author may still write a file of a checkpoint.

        Parameters
        ----------
        url : str
            URL of the checkpoint.
        file : str
            Name of the part to write, e.g. ``part-0-of-2.safetensors``; by default the manifest. Parts may have
            different incarnations, because single processes may be replaced.

        Raises
        ------
        TakenOverError
            A later run uses the directory, or a newer incarnation of the job has already written this file, for this
            step or for the newest complete checkpoint.
        """
        if not self.job_id:
            return
        directory = posixpath.dirname(url)
        Ownership(posixpath.dirname(directory), self.job_id).check()
        # also look at the newest complete checkpoint, because the job may have deleted the checkpoint of this step
        for step in {url, *_last_complete(directory)}:
            manifest = fs.join(step, MANIFEST)
            with suppress(CheckpointError, DataError):  # an unreadable manifest does not prove a newer incarnation
                there = decode_manifest(manifest, fs.read_bytes(manifest)) if fs.exists(manifest) else {}
                author, incarnation = there.get("author"), _incarnation_in(there, file)
                if author and author[0] == self.job_id and incarnation > self.incarnation:
                    raise TakenOverError(
                        f"{step}: written by incarnation {incarnation} of the job; this is {self.incarnation}."
                    )


def _incarnation_in(manifest: Mapping[str, Any], file: str) -> int:
    """Return the incarnation that wrote a manifest, or the part ``file`` in the manifest; -1 if unknown."""
    if not file:
        return int(manifest.get("author", ("", -1))[1])
    files = [each["file"] for each in (*manifest.get("parts", ()), *manifest.get("states", ()))]
    return max((incarnation_of(each) for each in files if index_of(each) == index_of(file)), default=-1)


def _last_complete(directory: str) -> list[str]:
    """Return the URL of the newest complete checkpoint in a directory, in a list; empty if there is none."""
    steps = [name for name in (fs.ls(directory) if fs.is_dir(directory) else ()) if re.fullmatch(r"step-\d+", name)]
    urls = [fs.join(directory, name) for name in sorted(steps, key=lambda name: int(name[5:]), reverse=True)]
    return list(itertools.islice((url for url in urls if fs.exists(fs.join(url, MANIFEST))), 1))


NOBODY = Author()
"""Author of checkpoints that belong to no job."""


def write_file(
    url: str, file: str, chunks: Sequence[bytes | memoryview], rescue: bool = False, author: Author = NOBODY
) -> dict[str, Any]:
    """Write a file of a checkpoint, and return its description for the manifest.

    Parameters
    ----------
    url : str
        URL of the checkpoint.
    file : str
        Name of the file, without an incarnation.
    chunks : sequence of bytes
        Content of the file.
    rescue : bool
        Whether to write the file to a directory on this host if writing to the URL fails.
    author : Author
        Identifies the job that writes.

    Returns
    -------
    dict
        ``file``: the name. ``bytes``: the length. ``sha256``: the checksum. A file that was written to this host
        instead of the URL also has ``kept_at``, ``HOST:DIRECTORY``, and ``why_kept``, the error.
    """
    file, digest = incarnation_name(file, author.incarnation), hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    facts = {"file": file, "bytes": sum(map(len, chunks)), "sha256": digest.hexdigest()}
    try:
        fs.write_atomic(fs.join(url, file), chunks, check=partial(author.check, url, file))
    except DataError as error:
        if not rescue:
            raise
        facts |= {_KEPT_AT: rescue_file(url, file, chunks, str(error)), _WHY_KEPT: str(error)}
    return facts


def rescue_file(url: str, file: str, content: bytes | Sequence[bytes | memoryview], why: str) -> str:
    """Write a file of a checkpoint to a directory on this host; return ``HOST:DIRECTORY``.

    ``why`` is the error with which the write to the URL failed. If this write fails, too, both errors are raised as one
    `CheckpointError`.
    """
    host = socket.gethostname()
    try:
        folder = _folder(url)
        fs.write_atomic(os.path.join(folder, file), content)
    except (OSError, DataError) as error:
        raise CheckpointError(f"{why} Writing {file} to a directory on {host} failed, too: {error}") from error
    return f"{host}:{folder}"


@lru_cache
def _folder(url: str) -> str:
    """Return the private directory on this host where this process rescues files of a checkpoint."""
    return tempfile.mkdtemp(prefix=f"singa-dask-{posixpath.basename(url)}-")


def _without_places(files: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the descriptions of files without ``kept_at`` and ``why_kept``."""
    return [{key: value for key, value in each.items() if key not in (_KEPT_AT, _WHY_KEPT)} for each in files]


def write_manifest(
    url: str,
    parts: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    rescue: bool = False,
    author: Author = NOBODY,
) -> dict[str, str]:
    """Write the manifest, which completes a checkpoint.

    If any file of the checkpoint was written to a host instead of the URL, the manifest is written to a directory on
    this host instead of the URL, too.

    Parameters
    ----------
    url : str
        URL of the checkpoint.
    parts, facts
        See `encode_manifest`.
    rescue : bool
        Whether to write the manifest to a directory on this host if writing to the URL fails.
    author : Author
        Identifies the job that writes.

    Returns
    -------
    dict of str to str
        For each ``HOST:DIRECTORY`` with files of the checkpoint, the error of writing to the URL. Empty if the
        checkpoint is complete.
    """
    files = [*parts, *facts.get("states", ())]
    places = {file[_KEPT_AT]: file[_WHY_KEPT] for file in files if _KEPT_AT in file}
    facts = {**facts, "states": _without_places(facts.get("states", ()))}
    if author.job_id:
        facts["author"] = list(author)
    content = encode_manifest(_without_places(parts), facts)
    if not places:
        try:
            author.check(url)  # before the next check: a newer incarnation may have deleted the files
            _check_seen(url, files)
            fs.write_atomic(fs.join(url, MANIFEST), content, check=partial(author.check, url))
            return {}
        except DataError as error:
            if not rescue:
                raise
            return {rescue_file(url, MANIFEST, content, str(error)): str(error)}
    why = next(iter(places.values()))
    return {rescue_file(url, MANIFEST, content, why): why, **places}


def _check_seen(url: str, files: Sequence[Mapping[str, Any]]) -> None:
    """Raise a `CheckpointError` if a file of a checkpoint cannot be seen from this host."""
    for each in files:
        if not patiently(partial(fs.exists, fs.join(url, each["file"]))):
            raise CheckpointError(
                f"{url}: {each['file']} was written by another process but cannot be seen from here. "
                "Give the run a directory that every process can reach (--run-dir with a shared path or a URL)."
            )
