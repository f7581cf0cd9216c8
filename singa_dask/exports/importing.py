"""Import weights: write the arrays of another program as a checkpoint from which jobs can start."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.conf.files.yaml_text import read_plain
from singa_dask.data.stores.training_knowledge import Learned
from singa_dask.data.tables.scaling import Scaling
from singa_dask.errors import ConfigError
from singa_dask.exports.exported_net import net_of_params
from singa_dask.exports.matching import TURNS, MapEntry, Matching, ParamPlace, param_places
from singa_dask.exports.weights import array_of, read_weights
from singa_dask.fs.open_bytes import decode_text
from singa_dask.runtime.checkpoints.author import write_file, write_manifest
from singa_dask.runtime.checkpoints.checkpoint import SavedTensor, write_part
from singa_dask.wording import suggest

logger = logging.getLogger(__name__)

KEYS = ("param", "rows", "transpose", "plus")


def import_weights(
    weights: Any,
    job: Any,
    path: str | os.PathLike[str],
    map: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    partial: bool = False,
) -> str:
    """Write the arrays of another program as a checkpoint, which can be passed as ``init_from``.

    Parameters
    ----------
    weights : path, mapping of str to array or tensor, or torch.nn.Module
        File or URL with the arrays: safetensors, npz, or ``.pt`` or ``.pth`` if PyTorch is installed. Or the arrays by
        name, or a module whose state dict contains them.
    job : Job
        Job to whose params the arrays are mapped.
    path : path
        Directory or URL for the checkpoint.
    map : mapping or path, optional
        Maps the name of each array to the name of a param; to a mapping with ``param``, ``transpose``, ``rows`` and
        ``plus``; to a list of such mappings; or to None, which leaves the array out. A YAML file with such a mapping is
        accepted, too. Without ``map``, arrays are matched by layer, name and shape, and only if each array has a single
        candidate.
    partial : bool
        Permit missing params. A job that starts from the checkpoint initialises them.

    Returns
    -------
    str
        URL of the checkpoint.

    Raises
    ------
    ConfigError
        Arrays or params are missing, unused, ambiguous, unknown or have a wrong shape. The message lists all of them,
        and contains a map to complete if ``map`` is not given. Nothing is written.
    DataError
        The file cannot be read.
    """
    where, named = "weights", weights.state_dict() if hasattr(weights, "state_dict") else weights
    if isinstance(named, Mapping):
        arrays = {str(name): array_of(each) for name, each in named.items()}
    else:
        where = os.fspath(named)
        arrays = read_weights(where)
    return import_into(job.conf, where, arrays, os.fspath(path), read_map(map), partial)


def import_into(
    job: JobConf,
    where: str,
    arrays: Mapping[str, np.ndarray],
    path: str,
    map: Mapping[str, Any] | None,
    partial: bool = False,
    scalings: Mapping[str, Scaling] = MappingProxyType({}),
) -> str:
    """Write arrays as a checkpoint of a job, and the scalings of its input layers; see `import_weights`."""
    url = fs.absolute(path)
    if fs.exists(url) and (not fs.is_dir(url) or fs.ls(url)):
        raise ConfigError(f"{path}: exists already. Expected a new directory, or an empty one, for the checkpoint.")
    params = param_places(net_of_params(job))
    named = params if map is None else map
    counters = [name for name, each in arrays.items() if each.dtype.kind in "biu" and name not in named]
    arrays = {name: each for name, each in arrays.items() if name not in counters}
    problems: list[str] = []
    matching = Matching(arrays, params) if map is None else None
    if matching:
        entries, unused = matching.sure, matching.unused
    else:
        entries = list(_entries(named, arrays, params, problems))
        unused = [name for name in arrays if name not in named and all(name != entry.plus for entry in entries)]
    values = _values(entries, arrays, params, problems)
    taken = {entry.param for entry in entries}.union(matching.wanted if matching else ())
    missing = [] if partial else [name for name in params if name not in taken]
    if matching and matching.unsure:
        problems.append(f"{len(matching.unsure)} of {len(arrays)} arrays are ambiguous: the lines with # below.")
    if missing:
        problems.append(f"missing params: {', '.join(missing)}.")
    if unused:
        problems.append(f"unused arrays: {', '.join(unused)}. To leave one out, map it to null.")
    if problems:
        lines = [f"{where}: {problem}" for problem in problems]
        table = matching.lines() if matching and (matching.unsure or missing or unused) else ()
        raise ConfigError("\n".join([*lines, *table]))
    if counters:
        logger.warning("%s: arrays that are not floats are left out: %s.", where, ", ".join(counters))
    write_values(url, job, values, scalings)
    return url


def read_map(map: Mapping[str, Any] | str | os.PathLike[str] | None) -> Mapping[str, Any] | None:
    """Return a map, read from a YAML file if necessary."""
    if map is None or isinstance(map, Mapping):
        return map
    file = os.fspath(map)
    mapping = read_plain(decode_text(fs.absolute(file)), file)
    if not isinstance(mapping, dict):
        raise ConfigError(f"{file}: expected a map, name in the file: name of the param.")
    return {str(name): each for name, each in mapping.items()}


def _entries(
    map: Mapping[str, Any], arrays: Mapping[str, np.ndarray], params: Mapping[str, ParamPlace], problems: list[str]
) -> Iterator[MapEntry]:
    """Yield the valid entries of a map, and add its mistakes to ``problems``."""
    taken: set[str] = set()
    for name, said in map.items():
        if name not in arrays:
            problems.append(f"map: there is no array {name!r}. {suggest(name, arrays)}")
            continue
        for each in said if isinstance(said, list) else [] if said is None else [said]:
            entry_map = {"param": each} if isinstance(each, str) else each
            try:
                entry = MapEntry(name, **_checked(entry_map))
            except ConfigError as error:
                problems.append(f"map: {name}: {error}")
                continue
            if entry.param not in params:
                problems.append(f"map: {name}: the job has no param {entry.param!r}. {suggest(entry.param, params)}")
            elif entry.plus and (entry.plus not in arrays or arrays[entry.plus].shape != arrays[name].shape):
                problems.append(f"map: {name}: plus: there is no array {entry.plus!r} of shape {arrays[name].shape}.")
            elif entry.param in taken:
                problems.append(f"map: {name}: param {entry.param!r} is given twice.")
            else:
                taken.add(entry.param)
                yield entry


def _checked(given: Any) -> dict[str, Any]:
    """Return an entry of a map as arguments of `MapEntry`."""
    if not isinstance(given, dict) or not isinstance(given.get("param"), str):
        raise ConfigError(f"expected the name of a param, or a map with the key param, got {given!r}.")
    for key in given:
        if key not in KEYS:
            raise ConfigError(f"unknown key {key!r}. {suggest(str(key), KEYS)}")
    rows, axes = given.get("rows", []), given.get("transpose", False)
    if not isinstance(rows, list) or len(rows) not in (0, 2) or not all(type(row) is int for row in rows):
        raise ConfigError(f"rows: expected two whole numbers, the first row and the one after the last, got {rows!r}.")
    if not isinstance(given.get("plus", ""), str):
        raise ConfigError(f"plus: expected the name of an array, got {given['plus']!r}.")
    if not isinstance(axes, bool) and not (isinstance(axes, list) and sorted(axes) == list(range(len(axes)))):
        raise ConfigError(f"transpose: expected true, or the order of the axes, e.g. [1, 0], got {axes!r}.")
    return given


def _values(
    entries: Sequence[MapEntry], arrays: Mapping[str, np.ndarray], params: Mapping[str, ParamPlace], problems: list[str]
) -> dict[str, np.ndarray]:
    """Return the values of params whose arrays fit, and add mistakes to ``problems``."""
    fitted = {}
    for entry in entries:
        array, place = arrays[entry.name], params[entry.param]
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            problems.append(f"{entry.name}: the type is {array.dtype}, expected floats for param {entry.param!r}.")
            continue
        try:
            taken = entry.values(arrays)
        except ValueError:
            problems.append(f"{entry.name}: the axes of shape {array.shape} do not fit transpose: {entry.transpose}.")
            continue
        values = place.fit(taken)
        if values is None:
            turn = TURNS.get(taken.ndim, False)
            fits = turn and place.fit(MapEntry("", "", turn).values({"": taken})) is not None
            hint = f" Transposed it would fit: transpose: {str(turn).lower()}." if fits else ""
            shapes = f"the shape is {taken.shape}, but param {entry.param!r} has {place.param.whole_shape}"
            problems.append(f"{entry.name}: {shapes}.{hint}")
            continue
        fitted[entry.param] = np.ascontiguousarray(values, place.param.dtype)
        if not np.isfinite(fitted[entry.param]).all():
            problems.append(f"{entry.name}: some values are not finite.")
    return fitted


def write_values(
    url: str,
    job: JobConf,
    values: Mapping[str, np.ndarray],
    scalings: Mapping[str, Scaling],
    encodings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a checkpoint of step 0; see `Learned` for ``scalings`` and ``encodings``."""
    pieces = [SavedTensor(i, 0, "value", 0, each.reshape(-1)) for i, each in enumerate(values.values())]
    part = write_part(partial(write_file, url), 0, 1, pieces, list(values))
    facts = {name: {"shape": list(each.shape), "dtype": str(each.dtype)} for name, each in values.items()}
    about = {"job": job.name, "step": 0, "seed": job.seed, "time": time.time(), "groups": {}, "deals": {}}
    learned = Learned.of()._replace(scalings=dict(scalings), encodings=dict(encodings)).to_dict()
    write_manifest(url, [part], {**about, "params": facts, **learned})
