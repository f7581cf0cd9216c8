"""Encode and decode the manifest of a checkpoint: JSON with checksums of all files and of itself.

Manifests that older versions wrote lack the checksum of the manifest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from singa_dask.errors import CheckpointError


def incarnation_name(file: str, incarnation: int) -> str:
    """Return the name under which an incarnation writes ``file``, e.g. ``part-0-of-2.life-3.safetensors``."""
    stem, _, suffix = file.rpartition(".")
    return f"{stem}.life-{incarnation}.{suffix}" if incarnation else file


def incarnation_of(file: str) -> int:
    """Return the incarnation in a file name, e.g. 3 for ``part-0-of-2.life-3.safetensors``."""
    match = re.search(r"\.life-(\d+)\.", file)
    return int(match[1]) if match else 0


def index_of(file: str) -> str:
    """Return the name that a part has in all steps and incarnations, e.g. ``part-0-of-2``."""
    return file.rpartition("/")[2].partition(".")[0]


FORMAT = "singa-dask checkpoint 1"
MANIFEST = "manifest.json"


def encode_manifest(parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest.

    Parameters
    ----------
    parts : sequence of dict
        Results of `write_part`.
    facts : dict
        Other entries of the manifest: ``job``, ``step``, ``seed``, ``groups``, ``deals`` (block assignments) and
        ``params``. ``params`` is {name: {shape, dtype}}; if servers store shards of a param, it also has ``parts``,
        {key: [axis, start, stop]}. Optional entries:

        - ``class_names``: {input layer: names}
        - ``tables``: {input layer: `TableFacts.to_dict`}
        - ``scalings``: {input layer: `Scaling.to_dict`}
        - ``cut``: True if the checkpoint is consistent for several worker groups; see `why_inconsistent`.
    """
    body = json.dumps(make_manifest(parts, facts), indent=1).encode()
    return body.removesuffix(b"\n}") + _checksum_lines(body)


def make_manifest(parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest as a dict, without its own checksum; see `encode_manifest`."""
    # the key "checksum" announces the key "sha256" at the end, so that damage to that last key is noticed
    return {"format": FORMAT, "checksum": "sha256", **facts, "parts": list(parts)}


def why_inconsistent(parts: Sequence[Mapping[str, Any]], groups: Mapping[str, Mapping[str, Any]]) -> str:
    """Return why a checkpoint of several worker groups is not consistent; empty if it is.

    In a consistent checkpoint, the same gradients were applied to all values: for each group, exactly the gradients of
    the steps before the group's position.
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
    """Return the newest step of a worker group whose gradient was applied to all values, or -1."""
    return min((_newest_step_of(tensor, group) for tensor in _trained(parts)), default=-1)


def _newest_step_of(tensor: Mapping[str, Any], group: str) -> int:
    return int(tensor.get("applied", {}).get(group, -1))


def _trained(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the descriptions of the values of params to which a gradient of any worker group was applied."""
    values = [tensor for part in parts for tensor in part["tensors"] if tensor["what"] == "value"]
    trained = {tensor["param"] for tensor in values if tensor.get("applied")}
    return [tensor for tensor in values if tensor["param"] in trained]


def _checksum_lines(body: bytes) -> bytes:
    """Return the last lines of a manifest, with the checksum of ``body``."""
    return f',\n "sha256": "{hashlib.sha256(body).hexdigest()}"\n}}'.encode()


def decode_manifest(url: str, content: bytes) -> dict[str, Any]:
    """Return the content of a manifest; raise `CheckpointError` if it is damaged or has another format."""
    try:
        manifest = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"{url}: damaged: {error}.") from error
    if not isinstance(manifest, dict):
        raise CheckpointError(f"{url}: damaged: expected a JSON object.")
    if "checksum" in manifest or "sha256" in manifest:
        end = len(_checksum_lines(b""))
        if content[-end:] != _checksum_lines(content[:-end] + b"\n}"):
            raise CheckpointError(f"{url}: damaged: its checksum does not match its content.")
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{url}: format {manifest.get('format')!r} is not known. This version reads {FORMAT!r}.")
    return manifest
