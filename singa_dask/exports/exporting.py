"""Export trained nets to files: as ONNX, as a PyTorch module, or as weights."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_dask import fs
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, loads
from singa_dask.errors import ConfigError
from singa_dask.exports.encoding import ENCODERS, encode_state_dict
from singa_dask.exports.exported_net import ExportedNet, input_facts, net_of_params
from singa_dask.exports.weights import encode_npz, encode_safetensors
from singa_dask.fs.open_bytes import decode_text
from singa_dask.fs.outputs import check_output
from singa_dask.observe.files.stored_run import run_of
from singa_dask.runtime.checkpoints import lookup, singa_checkpoint
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.checkpoints.layer_states import read_states
from singa_dask.version import __version__

SUFFIXES = {
    ".npz": "npz",
    ".onnx": "onnx",
    ".pt": "state_dict",
    ".pth": "state_dict",
    ".py": "torch",
    ".safetensors": "safetensors",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))


class Exported(NamedTuple):
    """URLs of the written files, and notes for their users."""

    urls: tuple[str, ...]
    notes: tuple[str, ...] = ()


def export(
    run: str | os.PathLike[str],
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    layers: Sequence[str] = (),
    job: Any = None,
    overwrite: bool = False,
) -> Exported:
    """Write a trained net for other programs.

    Parameters
    ----------
    run : Run, str or path
        A run, the URL of its run directory, or the URL of one of its checkpoints. With ``job``, any checkpoint,
        including SINGA's.
    path : path
        File or URL to write to. The file is written atomically. For PyTorch it is a module such as ``model.py``; its
        weights are written to ``model.weights.safetensors`` beside it. A file such as ``model.pt`` has the state dict
        of the net's only TorchModule, or of the TorchModule in ``layers``.
    format : {"onnx", "torch", "state_dict", "safetensors", "npz"}, optional
        Format of the file. By default the suffix of ``path`` decides.
    layers : sequence of str
        Output layers of the model. The default is the layers that losses compare with labels or targets.
    job : Job, optional
        Job with the net to export. The default is the run's own job.
    overwrite : bool
        Replace existing files.

    Returns
    -------
    Exported

    Raises
    ------
    ConfigError
        The format cannot express a layer, a package is missing, or there is no such run, layer or format. Nothing is
        written.
    CheckpointError
        The checkpoint has no values for the net, or the values do not fit.
    """
    url = os.fspath(run)
    return export_job(job_of_run(url) if job is None else job.conf, url, os.fspath(path), format, layers, overwrite)


def export_job(
    job: JobConf,
    checkpoint: str,
    target: str,
    format: str | None = None,
    layers: Sequence[str] = (),
    overwrite: bool = False,
    by: str = "overwrite=True",
) -> Exported:
    """Write the net of a job with the values of a checkpoint; see `export`.

    ``by`` is the name of the option ``overwrite`` in errors.
    """
    kind = _format_of(target, format)
    place = lookup.find_values(checkpoint)
    if kind in ("npz", "safetensors"):
        if layers:
            raise ConfigError(f"{target}: an export to {kind} has all params of the job. Leave the layers out.")
        encode = encode_npz if kind == "npz" else encode_safetensors
        files, notes = {target: encode(*_params(job, place))}, list[str]()
    else:
        exported = ExportedNet.of_checkpoint(checkpoint, job, layers, [place])
        if kind == "state_dict":
            files, notes = {target: encode_state_dict(exported, target, layers, _states(place))}, []
        else:
            files, notes = ENCODERS[kind](exported, target, _about(job, place)), exported.notes(kind)
    urls = {check_output(url, overwrite=overwrite, by=by): content for url, content in files.items()}
    for url, content in urls.items():
        fs.write_atomic(url, content)
    return Exported(tuple(files), tuple(notes))


def job_of_run(url: str, sets: Iterable[str] = ()) -> JobConf:
    """Return the job of a run, given the URL of the run or of a checkpoint.

    ``sets`` are changes ``KEY=VALUE``.
    """
    file = fs.join(run_of(fs.absolute(url).rstrip("/")), "resolved.yaml")
    return loads(decode_text(file), file, sets, registries=REGISTRIES).job


def _format_of(target: str, format: str | None) -> str:
    suffix = posixpath.splitext(target)[1].lower()
    known = ", ".join(f"{name} ({ending})" for ending, name in SUFFIXES.items())
    if format is None:
        if suffix not in SUFFIXES:
            raise ConfigError(
                f"{target}: the suffix {suffix!r} is not the name of a format. Known: {known}. Or pass --format."
            )
        return SUFFIXES[suffix]
    if format not in FORMATS:
        raise ConfigError(f"{target}: unknown format {format!r}. Known: {known}.")
    if format == "torch" and suffix != ".py":
        raise ConfigError(f"{target}: expected the name of a Python module, such as model.py.")
    return format


def _about(job: JobConf, place: str) -> dict[str, Any]:
    """Return metadata for every format."""
    singa = singa_checkpoint.parse(place)
    step = singa[1] if singa else Checkpoint(place).step
    return {"producer": f"singa-dask {__version__}", "job": job.name, "step": str(step)}


def _states(place: str) -> dict[str, tuple[np.ndarray, ...]]:
    """Return the states of the first worker's layers in a checkpoint."""
    states = [] if singa_checkpoint.parse(place) else read_states(Checkpoint(place), 0, 0)
    return {each.layer: each.arrays for each in states if each.phase == "train"}


def _params(job: JobConf, place: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the params of a checkpoint in the shapes of a job's net, and metadata."""
    stored = lookup.load_values(place, job.updater.ema_decay > 0)
    net = net_of_params(job)
    shapes = {name: kept.owner.whole_shape for name, kept in net.logical.items()}
    values = {name: each.fit(shapes.get(name, each.values.shape)) for name, each in stored.items()}
    wrong = [
        f"{place}: param {name!r} has {stored[name].show_shape()}, the net of {job.name} needs {shapes[name]}."
        for name, each in values.items()
        if each is None
    ]
    if wrong:
        raise ConfigError("\n".join(wrong))
    learned = InitialValues(job, (place,)).learned_to_predict()
    facts: dict[str, Any] = {**_about(job, place), "inputs": input_facts(net, learned.tables)}
    for layer, scaling in learned.scalings.items():
        facts["inputs"].setdefault(layer, {})["standardise"] = scaling.to_dict()
    if names := learned.class_names:
        facts["class_names"] = {layer: list(classes) for layer, classes in names.items()}
    return {name: each for name, each in values.items() if each is not None}, facts
