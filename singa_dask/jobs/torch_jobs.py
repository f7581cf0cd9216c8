"""Jobs that train a PyTorch module on data in memory or in Dask collections, without a job file."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singa_dask.errors import ConfigError
from singa_dask.jobs.datasets.array_records import ArrayWriter
from singa_dask.jobs.datasets.making import as_datasets
from singa_dask.jobs.datasets.records import Dataset
from singa_dask.jobs.job import Job
from singa_dask.jobs.net_values import Net, layer
from singa_dask.jobs.torch_objects import name_of

if TYPE_CHECKING:
    from distributed import Client

LOSSES = {"cross_entropy": "label", "mse": "target"}
"""Losses by name, and the field that each loss compares the outputs with."""
PHASES = ("train", "test", "val")
TESTS = {"test_freq": "test", "validate_freq": "val"}
"""Key of a job -> the dataset that the key needs."""


def is_module(value: Any) -> bool:
    """Return whether a value specifies a PyTorch module: a class, a function, or a TorchModule layer."""
    return callable(value) or (isinstance(value, Mapping) and value.get("type") == "TorchModule")


def module_layer(made: Any, name: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the TorchModule layer for a class, function, name or layer that `is_module` accepts."""
    return {"name": name, **(made if isinstance(made, Mapping) else layer("TorchModule", module=made, **(args or {})))}


def source_files(*made: Any) -> list[str]:
    """Return the files that define classes, functions or names, for ``modules`` of a job.

    A name is, for example, ``mymodels:Net``. Files of packages, of installed modules, and of modules that this process
    has not imported are left out.
    """
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
    files: dict[str, None] = {}
    for each in made:
        place = (each if isinstance(each, str) else name_of(each) if callable(each) else "").partition(":")[0]
        for module in (sys.modules.get(place), sys.modules["__main__"]):
            file = Path(getattr(module, "__file__", None) or "")
            if file.name == f"{place}.py" and not any(file.resolve().is_relative_to(each) for each in installed):
                files[str(file)] = None
                break
    return list(files)


def module_job(
    made: Any,
    data: Any,
    client: Client | str | None,
    *,
    loss: Any = None,
    batchsize: int | None = None,
    shuffle: bool = False,
    **keys: Any,
) -> tuple[Job, dict[str, Dataset]]:
    """Return the job that trains a module on data, and its datasets.

    Parameters
    ----------
    made : class, function or mapping
        Class of the module, a function that returns it, or ``nn.TorchModule(Net, dim=64)``.
    data, client
        See `singa_dask.train`. Datasets with the names ``test`` and ``val`` are for tests and validations.
    loss : str, class, function or mapping
        ``"cross_entropy"``, ``"mse"``, a loss of PyTorch, or a layer such as ``nn.TorchLoss(focal, gamma=2.0)``.
    batchsize : int
        Number of records in a batch of a worker group.
    shuffle : bool
        Whether to read the training records in a new random order in each epoch.
    **keys
        Keys of the job, such as ``epochs``, and ``updater`` with a number or a block as ``learning_rate``.

    Raises
    ------
    ConfigError
        An argument is missing or wrong.
    """
    net = module_layer(made, "module")
    for name, value in {"loss": loss, "batchsize": batchsize, "data": data}.items():
        if value is None:
            raise ConfigError(f"train: {name} is missing. A module needs data, loss, batchsize, updater and epochs.")
    datasets = as_datasets(data, client)
    if "train" not in datasets:
        raise ConfigError(f"train: data has {', '.join(datasets)}, expected records with the name 'train'.")
    use, n_targets = _output_of(datasets["train"])
    for key, name in TESTS.items():
        if keys.get(key) and name not in datasets:
            raise ConfigError(f"train: {key} needs records to test with. Pass data={{'train': ..., {name!r}: ...}}.")
    layers = []
    for name in (each for each in PHASES if each in datasets):
        # test nets without a dataset of their own include the layers, so that `predict` can pass records to them
        include = [name] if name != "train" else [each for each in PHASES if each == name or each not in datasets]
        store = {"path": f"dask://{name}", "shape": list(_shape_of(datasets[name])), "batchsize": batchsize}
        store |= {"shuffle": "full"} if shuffle and name == "train" else {}
        layers.append(layer("RecordInput", name="data", include=include, store_conf=store))
        if use == "target":
            layers.append(layer("TargetInput", name="target", include=include, store_conf=store, size=n_targets))
    net.setdefault("srclayers", ["data"])
    compared = {"srclayers": [net["name"], "data" if use == "label" else "target"], **_loss_layer(loss, use)}
    layers += [net, compared]
    names = [net["torchmodule_conf"]["module"], compared.get("torchloss_conf", {}).get("loss")]
    name = names[0].rpartition(":")[2].lower()
    keys = {"name": name, "train_one_batch": {"alg": "BP"}, "modules": source_files(*names), **keys}
    updater = keys.get("updater")
    if isinstance(updater, Mapping) and isinstance(rate := updater.get("learning_rate"), int | float):
        keys["updater"] = {**updater, "learning_rate": {"type": "Fixed", "base_lr": rate}}
    return Job(Net(layers), **keys), datasets


def _output_of(dataset: Dataset) -> tuple[str, int]:
    """Return "label" or "target" for the outputs of a dataset, and the number of targets."""
    writer = dataset.write_part
    if isinstance(writer, ArrayWriter) and writer.output:
        name, field = writer.output
        return name, field.shape[0] if field.shape else 1
    for use in ("target", "label"):
        if names := dataset.defaults.get(use, ()):
            return use, len(names)
    raise ConfigError(f"train: data {dataset.name!r} has no labels or targets. Pass a pair, data=(x, y).")


def _shape_of(dataset: Dataset) -> Sequence[int]:
    return dataset.shape or (len(dataset.columns),)


def _loss_layer(loss: Any, use: str) -> dict[str, Any]:
    """Return the layer for a loss that compares outputs with labels or targets."""
    if isinstance(loss, Mapping):
        return {"name": "loss", **loss}
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise ConfigError(f"train: unknown loss {loss!r}. Expected {' or '.join(LOSSES)}, or a class or function.")
        if LOSSES[loss] != use:
            has, wants = ("integers or texts", "floats") if use == "label" else ("floats", "integers or texts")
            raise ConfigError(
                f"train: loss {loss!r} needs {wants} as y, but y has {has}. Convert y, or pass another loss."
            )
        if loss == "cross_entropy":
            return layer("SoftmaxLoss", name="loss")
        loss = "torch.nn:MSELoss"
    return layer("TorchLoss", name="loss", loss=loss, target="labels" if use == "label" else "data")
