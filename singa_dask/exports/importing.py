"""Import weights: write arrays of other programs as a checkpoint that jobs start from."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.conf.yaml_text import dump, read_plain
from singa_dask.data.codecs.scaling import Scaling
from singa_dask.errors import ConfigError
from singa_dask.exports.exported_net import net_of_params
from singa_dask.exports.weights import read_weights
from singa_dask.fs.open_bytes import decode_text
from singa_dask.layers import Param
from singa_dask.registry import suggest
from singa_dask.runtime.checkpoints.author import write_file, write_manifest
from singa_dask.runtime.checkpoints.checkpoint import SavedTensor, write_part

KEYS = ("param", "rows", "transpose")


class MapEntry(NamedTuple):
    """The param that an array, or some of its rows, becomes.

    Attributes
    ----------
    name : str
        Name of the array.
    transpose : bool or sequence of int
        Whether to reverse the axes, or their new order.
    rows : sequence of int
        Range of rows, first and stop; all if empty.
    """

    name: str
    param: str
    transpose: bool | Sequence[int] = False
    rows: Sequence[int] = ()

    def values(self, array: np.ndarray) -> np.ndarray:
        """Return the values for the param."""
        rows = array[slice(*self.rows)] if self.rows else array
        return rows.T if self.transpose is True else np.transpose(rows, self.transpose) if self.transpose else rows


def import_weights(
    weights: str | os.PathLike[str] | Mapping[str, Any],
    job: Any,
    path: str | os.PathLike[str],
    map: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    partial: bool = False,
) -> str:
    """Write arrays of another program as a checkpoint, which ``init_from`` takes.

    Parameters
    ----------
    weights : path or mapping of str to array
        File or URL: safetensors, npz, or ``.pt`` if PyTorch is installed; or the arrays by name.
    job : Job
        Job whose params the arrays become.
    path : path
        Directory or URL of the checkpoint.
    map : mapping or path, optional
        Name in the file -> name of a param, or a mapping with ``param``, ``transpose`` and ``rows``, a list of these,
        or None to leave the array out; or a YAML file of such a mapping. Without it all names must be equal.
    partial : bool
        Allow missing params: a job that starts from the checkpoint initialises them.

    Returns
    -------
    str
        URL of the checkpoint.

    Raises
    ------
    ConfigError
        Arrays or params are missing, unused, unknown or misshapen; the message has all of them, and a proposal of
        ``map`` if it is not given. Nothing is written.
    DataError
        The file cannot be read.
    """
    where = "weights" if isinstance(weights, Mapping) else os.fspath(weights)
    arrays = {str(name): np.asarray(each) for name, each in weights.items()} if isinstance(weights, Mapping) else None
    return import_into(job.conf, where, arrays or read_weights(where), os.fspath(path), read_map(map), partial)


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
    params = {name: kept.owner for name, kept in net_of_params(job).logical.items()}
    problems: list[str] = []
    if map is None:
        entries = [MapEntry(name, name) for name in arrays if name in params]
        unused = [name for name in arrays if name not in params]
    else:
        entries = list(_entries(map, arrays, params, problems))
        unused = [name for name in arrays if name not in map]
    values = _values(entries, arrays, params, problems)
    taken = {entry.param for entry in entries}
    missing = [] if partial else [name for name in params if name not in taken]
    if missing:
        problems.append(f"missing params: {', '.join(missing)}.")
    if unused:
        problems.append(f"unused arrays: {', '.join(unused)}. To leave one out, map it to null.")
    if problems:
        lines = [f"{where}: {problem}" for problem in problems]
        raise ConfigError("\n".join([*lines, *(_proposal(arrays, params, taken) if map is None else ())]))
    _write(url, job, values, scalings)
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
    map: Mapping[str, Any], arrays: Mapping[str, np.ndarray], params: Mapping[str, Param], problems: list[str]
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
    if not isinstance(axes, bool) and not (isinstance(axes, list) and sorted(axes) == list(range(len(axes)))):
        raise ConfigError(f"transpose: expected true, or the order of the axes, e.g. [1, 0], got {axes!r}.")
    return given


def _values(
    entries: Sequence[MapEntry], arrays: Mapping[str, np.ndarray], params: Mapping[str, Param], problems: list[str]
) -> dict[str, np.ndarray]:
    """Return the values of params whose arrays fit, and add mistakes to ``problems``."""
    fitted = {}
    for entry in entries:
        array, param = arrays[entry.name], params[entry.param]
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            problems.append(f"{entry.name}: {array.dtype}, expected floats for param {entry.param!r}.")
            continue
        try:
            taken = entry.values(array)
        except ValueError:
            problems.append(f"{entry.name}: shape {array.shape} has other axes than transpose: {entry.transpose}.")
            continue
        values = _fit(taken, param.whole_shape)
        if values is None:
            hint = " Transposed it would fit: transpose: true." if _fit(taken.T, param.whole_shape) is not None else ""
            shapes = f"shape {taken.shape}, param {entry.param!r} has {param.whole_shape}"
            problems.append(f"{entry.name}: {shapes}.{hint}")
            continue
        fitted[entry.param] = np.ascontiguousarray(values, param.dtype)
        if not np.isfinite(fitted[entry.param]).all():
            problems.append(f"{entry.name}: values are not finite.")
    return fitted


def _fit(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Reshape values to a param if shapes differ only in axes of length 1, or of a filter; else return None."""
    if values.size != math.prod(shape):
        return None
    alike = [n for n in values.shape if n > 1] == [n for n in shape if n > 1]
    filters = values.ndim > 2 and len(shape) == 2 and values.shape[0] == shape[0]
    return values.reshape(shape) if alike or filters else None


def _proposal(arrays: Mapping[str, np.ndarray], params: Mapping[str, Param], taken: set[str]) -> Iterator[str]:
    """Yield the lines of a proposed map, by shape and order."""
    free = sorted((name for name in arrays if name not in taken), key=_natural)
    proposal: dict[str, Any] = {name: name for name in arrays if name in taken}
    for param in (name for name in params if name not in taken):
        for entry in (MapEntry(name, param, transpose) for transpose in (False, True) for name in free):
            if _fit(entry.values(arrays[entry.name]), params[param].whole_shape) is not None:
                proposal[entry.name] = {"param": param, "transpose": True} if entry.transpose else param
                free.remove(entry.name)
                break
    proposal |= dict.fromkeys(free)
    yield "A map by shape and order. Check it, save it as map.yaml, and pass --map map.yaml"
    yield dump(proposal).rstrip()


def _natural(name: str) -> list[Any]:
    """Return a sort key by which conv2 precedes conv10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _write(url: str, job: JobConf, values: Mapping[str, np.ndarray], scalings: Mapping[str, Scaling]) -> None:
    """Write a checkpoint of step 0."""
    pieces = [SavedTensor(i, 0, "value", 0, each.reshape(-1)) for i, each in enumerate(values.values())]
    part = write_part(partial(write_file, url), 0, 1, pieces, list(values))
    facts = {name: {"shape": list(each.shape), "dtype": str(each.dtype)} for name, each in values.items()}
    about = {"job": job.name, "step": 0, "seed": job.seed, "time": time.time(), "groups": {}, "deals": {}}
    scaled = {name: each.to_dict() for name, each in scalings.items()}
    write_manifest(url, [part], {**about, "params": facts, **({"scalings": scaled} if scaled else {})})
