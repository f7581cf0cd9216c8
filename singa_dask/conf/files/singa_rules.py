"""Change a job in SINGA's format so that it computes the same as SINGA.

`apply_rules` adds SINGA's defaults where the defaults of this package differ, and replaces SINGA's deprecated input
layers.
"""

from __future__ import annotations

from singa_dask.conf.files.singa_inputs import replace_deprecated, sources_of, type_of
from singa_dask.conf.files.tree import Items, Scalar, TreeMap, child, drop, inner, items, named, set_default
from singa_dask.conf.kinds import phase_name
from singa_dask.errors import Problem

LABEL_READERS = {"SoftmaxLoss", "CudnnSoftmaxLoss", "Accuracy", "CSVOutput", "RecordOutput"}


def apply_rules(root: TreeMap) -> list[Problem]:
    """Change a job so that it computes what SINGA does; return the problems in replaced blocks."""
    _set_steps(root)
    _set_updater(root)
    layers = _layers(root)
    validates = _runs(root, "validate")
    for layer in layers:
        _set_layer(layer, validates)
    _part_test_net(root, layers)
    problems = replace_deprecated(root, layers) + _refuse_hdfsfile(layers)
    _set_labels(layers)
    return problems


def _layers(root: TreeMap) -> list[TreeMap]:
    return [layer for layer in items(child(root, "neuralnet", "layer")) if isinstance(layer, TreeMap)]


def _set_steps(root: TreeMap) -> None:
    """Set SINGA's default of 0 batches for tests and validations."""
    for phase in ("test", "validate"):
        if entry := root.entries.get(f"{phase}_freq"):
            set_default(root, f"{phase}_steps", 0, entry.place)


def _set_updater(root: TreeMap) -> None:
    """Set the options with which updaters and schedules compute the same as in SINGA."""
    updater = child(root, "updater")
    rate = child(updater, "learning_rate")
    if isinstance(rate, TreeMap) and type_of(rate) == "Linear" and "linear_conf" in rate.entries:
        set_default(inner(rate, "linear_conf"), "clamp", False)
    if isinstance(rate, TreeMap) and type_of(rate) == "Inverse":
        inner(rate, "inverse_conf")
    if not isinstance(updater, TreeMap):
        return
    kind = type_of(updater)
    if kind in ("Adam", "AdamMax"):
        set_default(inner(updater, f"{kind.lower()}_conf"), "bias_correction", False)
    if kind in ("AdaDelta", "Adam", "AdamMax"):
        drop(updater, "clip_low", "clip_high")
    if kind == "AdaGrad":
        drop(updater, "delta")


def _set_layer(layer: TreeMap, validates: bool) -> None:
    """Remove keys that SINGA ignores, and make its implicit behaviour explicit."""
    kind = type_of(layer)
    excluded = child(layer, "exclude")
    if isinstance(excluded, Items) and not validates:
        # SINGA checks names only in nets that it builds, and old jobs do not validate
        excluded.items.append(Scalar(excluded.place, "val"))
    drop(child(layer, "relu_conf"), "negative_slope")
    drop(child(layer, "softmax_conf"), "num_softmax_per_instance")
    if kind == "ImagePreprocess":
        drop(child(layer, "rgbimage_conf"), "meanfile")
    if kind == "Pooling":
        set_default(inner(layer, "pooling_conf"), "ties", "all")
    backend = child(layer, "store_conf", "backend")
    if kind == "CSVInput" and isinstance(backend, Scalar) and backend.value == "textfile":
        backend.value = "csv"
    params = items(child(layer, "param"))
    for param in params:
        shared = child(param, "share_from")
        if isinstance(shared, Scalar) and isinstance(shared.value, str):
            shared.value = shared.value.removeprefix("0#")
    # a param for the bias means that the layer has one, whatever bias_term is
    first_bias = 6 if kind == "GRU" else 1
    if len(params) > first_bias:
        for name in ("innerproduct_conf", "convolution_conf", "rbm_conf", "gru_conf"):
            drop(child(layer, name), "bias_term")
    elif kind == "GRU" and isinstance(block := child(layer, "gru_conf"), TreeMap):
        drop(block, "bias_term")
        set_default(block, "bias_term", False)


def _refuse_hdfsfile(layers: list[TreeMap]) -> list[Problem]:
    """Refuse SINGA's format of records on HDFS."""
    problems = []
    for index, layer in enumerate(layers):
        backend = child(layer, "store_conf", "backend")
        if isinstance(backend, Scalar) and backend.value == "hdfsfile":
            message = (
                "SINGA's format of records on HDFS is not supported. Copy the original kvfile to HDFS, and set "
                'backend: "kvfile" with its hdfs:// path.'
            )
            problems.append(Problem(("neuralnet", "layer", index, "store_conf", "backend"), message, backend.place))
            backend.value = "kvfile"
    return problems


def _runs(root: TreeMap, phase: str) -> bool:
    """Return whether SINGA builds the net of tests or validations."""
    return all(isinstance(n := child(root, f"{phase}_{key}"), Scalar) and n.value for key in ("freq", "steps"))


def _part_test_net(root: TreeMap, layers: list[TreeMap]) -> None:
    """Exclude layers of the training net from a test net that SINGA does not build, if names would clash.

    In old jobs, the data layers of training and validation have the same name, and each excludes only the other phase.
    """
    if _runs(root, "test") or not any(_phases(layer, "exclude") for layer in layers):
        return
    tested = [layer for layer in layers if "test" not in _phases(layer, "exclude") and not _phases(layer, "include")]
    names = [named(layer) for layer in tested]
    for layer in tested:
        excluded = child(layer, "exclude")
        if names.count(named(layer)) > 1 and isinstance(excluded, Items) and "train" not in _phases(layer, "exclude"):
            excluded.items.append(Scalar(excluded.place, "test"))


def _phases(layer: TreeMap, key: str) -> set[object]:
    return {phase_name(node.value) for node in items(child(layer, key)) if isinstance(node, Scalar)}


def _set_labels(layers: list[TreeMap]) -> None:
    """Read labels only if a layer uses them, as SINGA allows records without labels."""
    wanted = {
        source.value
        for layer in layers
        if type_of(layer) in LABEL_READERS or "." in type_of(layer)
        for source in sources_of(layer)
    }
    for layer in layers:
        if type_of(layer) == "RecordInput":
            store = inner(layer, "store_conf")
            drop(store, "has_label")
            if named(layer) not in wanted:
                set_default(store, "has_label", False)
