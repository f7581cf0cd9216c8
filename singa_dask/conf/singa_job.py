"""Reader of jobs in SINGA's text format, versions 0.2 and 0.3, as trees that compute the same here.

Keys are those of the models, which have SINGA's names, so all keys of ours may stand in such a file, too. The models
say which may be repeated; the user's own extensions become ``user_conf``. `apply_rules` then makes a job compute what
SINGA does: other defaults, and deprecated input layers. User-defined C++ types are reported once, with what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from singa_dask.conf.base import Conf
from singa_dask.conf.findings import MISPLACED_KEY
from singa_dask.conf.job import JobConf
from singa_dask.conf.kinds import Count, Positive, RegisteredName, Size, phase_name, plain_name
from singa_dask.conf.layer import LayerConf, ParamConf
from singa_dask.conf.parts import PartConf, blocks_of
from singa_dask.conf.places import Items, Scalar, Tree, TreeEntry, TreeMap, locate, plain, show, step
from singa_dask.conf.singa_text import TextField, TextMessage, Value, Word, parse
from singa_dask.errors import Mark, Problem
from singa_dask.registry import Registry

Path = tuple[str | int, ...]

UNNAMED = ("kUserLayer", "kUserAlg", "kUserUpdater", "kUserChange", "kUserInit")


@dataclass
class OwnType(Scalar):
    """The value of a ``user_type``."""


def merge_own_types(root: Tree, problems: Sequence[Problem]) -> list[Problem]:
    """Merge all problems with an unknown ``user_type`` into one."""
    problems = [_named(root, problem) for problem in problems]
    own = dict(_own_types(root, ()))
    paths = {problem.path for problem in problems} & {path for path, name in own.items() if "." not in name}
    if not paths:
        return problems
    if isinstance(root, TreeMap) and "modules" in root.entries:
        names = [name for path, name in own.items() if path in paths]
        message = f'{_listed(names)} cannot be found. Say in which of the modules each is: user_type: "module.Class".'
    else:
        message = (
            f"{_listed(list(own.values()))}: SINGA has types of your own in C++, here they are classes in Python. "
            'Write them, name their file in the job, modules: "mine.py", and each of them, user_type: "mine.Class". '
            "See docs/parts.md, and examples/rnnlm for SINGA's language model."
        )
    first = next(path for path in own if path in paths)
    return [Problem(first, message), *(problem for problem in problems if problem.path not in paths)]


def _named(root: Tree, problem: Problem) -> Problem:
    """Ask for the name of a user-defined type where a job gives SINGA's placeholder only."""
    node: Tree | None = root
    for key in problem.path:
        node = step(node, key)
    if isinstance(node, Scalar) and node.value in UNNAMED:
        message = f'{node.value} is a type of your own, and the job does not say which. Add user_type: "module.Class".'
        return replace(problem, message=message)
    return problem


def _listed(names: Sequence[str]) -> str:
    *others, last = dict.fromkeys(map(repr, names))
    return f"{', '.join(others)} and {last}" if others else last


def _own_types(node: Tree, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(node, OwnType):
        yield path, str(node.value)
    elif isinstance(node, TreeMap):
        for key, entry in node.entries.items():
            yield from _own_types(entry.node, (*path, key))
    elif isinstance(node, Items):
        for index, item in enumerate(node.items):
            yield from _own_types(item, (*path, index))


def list_known_once(problems: Sequence[Problem]) -> list[Problem]:
    """Shorten the list of known names in a message if an earlier message has the same list."""
    seen: set[str] = set()
    shown = []
    for problem in problems:
        head, words, names = problem.message.partition(" Known: ")
        shown.append(replace(problem, message=f"{head} Known: see above.") if names in seen else problem)
        seen |= {names} if words else set()
    return shown


class ShardDataConf(Conf):
    """``sharddata_conf``: SINGA's deprecated data layer (DataProto)."""

    path: str
    """Folder or file of the records."""
    batchsize: Size
    """Records a step for the whole worker group."""
    random_skip: Count = 0
    """Start at a random record among the first this many."""


class LMDBDataConf(ShardDataConf):
    """``lmdbdata_conf``: SINGA's deprecated LMDB layer (DataProto)."""


class MnistConf(Conf):
    """``mnist_conf``: SINGA's deprecated parser of digit images; the distortion keys were never used."""

    norm_a: Positive = 1.0
    """Divides each pixel."""
    norm_b: float = 0.0
    """Subtracted after the division."""
    kernel: Count = 0
    """Unused."""
    sigma: float = 0.0
    """Unused."""
    alpha: float = 0.0
    """Unused."""
    beta: float = 0.0
    """Unused."""
    gamma: float = 0.0
    """Unused."""
    resize: Count = 0
    """Unused."""
    elastic_freq: Count = 0
    """Unused."""


DEPRECATED: dict[str, type[Conf]] = {each.block_key: each for each in (LMDBDataConf, MnistConf, ShardDataConf)}


LABEL_READERS = {"SoftmaxLoss", "CudnnSoftmaxLoss", "Accuracy", "CSVOutput", "RecordOutput"}


def apply_rules(root: TreeMap) -> list[Problem]:
    """Change a job so that it computes what SINGA does.

    Returns
    -------
    list of Problem
        Problems in blocks that have been replaced.
    """
    _set_steps(root)
    _set_updater(root)
    layers = _layers(root)
    validates = _runs(root, "validate")
    for layer in layers:
        _set_layer(layer, validates)
    _part_test_net(root, layers)
    problems = _replace_deprecated(root, layers) + _refuse_hdfsfile(layers)
    _set_labels(layers)
    return problems


# -- reading and changing blocks ---------------------------------------------------------------------------------


def _node(block: Tree | None, *keys: str) -> Tree | None:
    """Return the node under a path of keys, None if there is none."""
    node = block
    for key in keys:
        entry = node.entries.get(key) if isinstance(node, TreeMap) else None
        node = entry.node if entry else None
    return node


def _inner(block: TreeMap, key: str) -> TreeMap:
    """Return the block under a key; create an empty one if there is none."""
    node = block.entries.setdefault(key, TreeEntry(block.place, TreeMap(block.place, {}))).node
    return node if isinstance(node, TreeMap) else TreeMap(block.place, {})


def _items(block: Tree | None, key: str) -> list[Tree]:
    node = _node(block, key)
    return node.items if isinstance(node, Items) else []


def _layers(root: TreeMap) -> list[TreeMap]:
    return [layer for layer in _items(_node(root, "neuralnet"), "layer") if isinstance(layer, TreeMap)]


def _type(block: Tree | None) -> str:
    node = _node(block, "type")
    return plain_name(node.value) if isinstance(node, Scalar) and isinstance(node.value, str) else ""


def _name(layer: TreeMap) -> object:
    node = _node(layer, "name")
    return node.value if isinstance(node, Scalar) else None


def _sources(layer: TreeMap) -> Iterator[Scalar]:
    return (node for node in _items(layer, "srclayers") if isinstance(node, Scalar))


def _put(block: TreeMap, key: str, value: bool | int | float | str | list[int], place: Mark | None = None) -> None:
    """Set a key that is not there."""
    at = place or block.place
    node = Items(at, [Scalar(at, each) for each in value]) if isinstance(value, list) else Scalar(at, value)
    block.entries.setdefault(key, TreeEntry(at, node))


def _drop(block: Tree | None, *keys: str) -> None:
    if isinstance(block, TreeMap):
        for key in keys:
            block.entries.pop(key, None)


# -- SINGA's rules where ours are others -------------------------------------------------------------------------


def _set_steps(root: TreeMap) -> None:
    """Set SINGA's default of 0 batches for tests and validations."""
    for phase in ("test", "validate"):
        if entry := root.entries.get(f"{phase}_freq"):
            _put(root, f"{phase}_steps", 0, entry.place)


def _set_updater(root: TreeMap) -> None:
    """Compute as SINGA's updaters and schedules do; the docstring of each says how."""
    updater = _node(root, "updater")
    rate = _node(updater, "learning_rate")
    if isinstance(rate, TreeMap) and _type(rate) == "Linear" and "linear_conf" in rate.entries:
        _put(_inner(rate, "linear_conf"), "clamp", False)
    if isinstance(rate, TreeMap) and _type(rate) == "Inverse":
        _inner(rate, "inverse_conf")
    if not isinstance(updater, TreeMap):
        return
    kind = _type(updater)
    if kind in ("Adam", "AdamMax"):
        _put(_inner(updater, f"{kind.lower()}_conf"), "bias_correction", False)
    if kind in ("AdaDelta", "Adam", "AdamMax"):
        _drop(updater, "clip_low", "clip_high")
    if kind == "AdaGrad":
        _drop(updater, "delta")


def _set_layer(layer: TreeMap, validates: bool) -> None:
    """Remove keys that SINGA does not read, and make its implicit behaviour explicit."""
    kind = _type(layer)
    excluded = _node(layer, "exclude")
    if isinstance(excluded, Items) and not validates:
        # SINGA looks for double names only in nets that it builds; old jobs know of no validation
        excluded.items.append(Scalar(excluded.place, "val"))
    _drop(_node(layer, "relu_conf"), "negative_slope")
    _drop(_node(layer, "softmax_conf"), "num_softmax_per_instance")
    if kind == "ImagePreprocess":
        _drop(_node(layer, "rgbimage_conf"), "meanfile")
    if kind == "Pooling":
        _put(_inner(layer, "pooling_conf"), "ties", "all")
    backend = _node(layer, "store_conf", "backend")
    if kind == "CSVInput" and isinstance(backend, Scalar) and backend.value == "textfile":
        backend.value = "csv"
    params = _items(layer, "param")
    for param in params:
        shared = _node(param, "share_from")
        if isinstance(shared, Scalar) and isinstance(shared.value, str):
            shared.value = shared.value.removeprefix("0#")
    # whatever bias_term says, there is a bias where a param is for it
    first_bias = 6 if kind == "GRU" else 1
    if len(params) > first_bias:
        for name in ("innerproduct_conf", "convolution_conf", "rbm_conf", "gru_conf"):
            _drop(_node(layer, name), "bias_term")
    elif kind == "GRU" and isinstance(block := _node(layer, "gru_conf"), TreeMap):
        _drop(block, "bias_term")
        _put(block, "bias_term", False)


def _refuse_hdfsfile(layers: list[TreeMap]) -> list[Problem]:
    """Refuse SINGA's own format of records on HDFS, with advice."""
    problems = []
    for index, layer in enumerate(layers):
        backend = _node(layer, "store_conf", "backend")
        if isinstance(backend, Scalar) and backend.value == "hdfsfile":
            message = (
                "SINGA's format of records on HDFS is not read. Copy the kvfile that they were made of to HDFS, and "
                'say backend: "kvfile" with its hdfs:// path.'
            )
            problems.append(Problem(("neuralnet", "layer", index, "store_conf", "backend"), message, backend.place))
            backend.value = "kvfile"
    return problems


def _runs(root: TreeMap, phase: str) -> bool:
    """Tell whether SINGA builds the net of tests or validations."""
    return all(isinstance(n := _node(root, f"{phase}_{key}"), Scalar) and n.value for key in ("freq", "steps"))


def _part_test_net(root: TreeMap, layers: list[TreeMap]) -> None:
    """Exclude layers of the training net from a test net that SINGA does not build, if names would clash.

    Old jobs give the data layers of training and validation the same name, and ``exclude`` only the other phase.
    """
    if _runs(root, "test") or not any(_phases(layer, "exclude") for layer in layers):
        return
    tested = [layer for layer in layers if "test" not in _phases(layer, "exclude") and not _phases(layer, "include")]
    names = [_name(layer) for layer in tested]
    for layer in tested:
        excluded = _node(layer, "exclude")
        if names.count(_name(layer)) > 1 and isinstance(excluded, Items) and "train" not in _phases(layer, "exclude"):
            excluded.items.append(Scalar(excluded.place, "test"))


def _phases(layer: TreeMap, key: str) -> set[object]:
    return {phase_name(node.value) for node in _items(layer, key) if isinstance(node, Scalar)}


def _set_labels(layers: list[TreeMap]) -> None:
    """Read labels only where a layer uses them: SINGA takes 0 as the label of a record without one."""
    wanted = {
        source.value
        for layer in layers
        if _type(layer) in LABEL_READERS or "." in _type(layer)
        for source in _sources(layer)
    }
    for layer in layers:
        if _type(layer) == "RecordInput":
            store = _inner(layer, "store_conf")
            _drop(store, "has_label")
            if _name(layer) not in wanted:
                _put(store, "has_label", False)


# -- deprecated input layers -------------------------------------------------------------------------------------


def _replace_deprecated(root: TreeMap, layers: list[TreeMap]) -> list[Problem]:
    """Replace ShardData, LMDBData, Mnist, RGBImage and Label by current layers.

    A Mnist layer scales the pixels of its source, a Label layer gives the labels of its source. Both are removed, and
    their readers read the source.
    """
    problems: list[Problem] = []
    by_name: dict[object, list[TreeMap]] = {}
    for layer in layers:
        by_name.setdefault(_name(layer), []).append(layer)
    instead: dict[object, object] = {}
    for layer in layers:
        kind, sources = _type(layer), [source.value for source in _sources(layer)]
        if kind in REPLACE:
            problems += REPLACE[kind](layer, [each for name in sources for each in by_name.get(name, [])])
        if kind in ("Mnist", "Label") and sources:
            instead[_name(layer)] = sources[0]
    net = _node(root, "neuralnet", "layer")
    if instead and isinstance(net, Items):
        net.items = [layer for layer in net.items if _type(layer) not in ("Mnist", "Label")]
        for layer in layers:
            for source in _sources(layer):
                seen: set[object] = set()
                while source.value in instead and source.value not in seen:
                    seen.add(source.value)
                    source.value = str(instead[source.value])
    return problems


def _checked(layer: TreeMap, key: str, model: type[Conf]) -> tuple[Any, list[Problem]]:
    """Return a block that is about to be replaced as its model, or None and its problems."""
    node = _node(layer, key)
    path = ("neuralnet", "layer", str(_name(layer)), key)
    shown = f"neuralnet.layer[{_name(layer)}].{key}"
    try:
        return model.model_validate({} if node is None else plain(node)), []
    except ValidationError as error:
        root = node or layer
        return None, [
            Problem(
                (*path, *mistake["loc"]),
                mistake["msg"],
                locate(root, mistake["loc"], at_key=mistake["type"] == MISPLACED_KEY),
                ".".join((shown, *map(str, mistake["loc"]))),
            )
            for mistake in error.errors(include_url=False)
        ]


def _replace_data(layer: TreeMap, sources: list[TreeMap]) -> list[Problem]:
    """Make a RecordInput of ShardData or LMDBData."""
    old, model, backend = {
        "ShardData": ("sharddata_conf", ShardDataConf, "kvfile"),
        "LMDBData": ("lmdbdata_conf", LMDBDataConf, "lmdb"),
    }[_type(layer)]
    conf, problems = _checked(layer, old, model)
    entry = layer.entries.pop(old, None)
    store = _inner(layer, "store_conf")
    _put(store, "backend", backend)
    if conf is not None and entry is not None and isinstance(entry.node, TreeMap):
        store.place = entry.node.place
        store.entries.update(entry.node.entries)
    layer.entries["type"].node = Scalar(layer.entries["type"].node.place, "RecordInput")
    return problems


def _replace_mnist(layer: TreeMap, sources: list[TreeMap]) -> list[Problem]:
    """Let the sources do what Mnist does: x / norm_a - norm_b, of images of 28 x 28."""
    conf, problems = _checked(layer, "mnist_conf", MnistConf)
    for source in sources:
        store = _inner(source, "store_conf")
        _put(store, "shape", [1, 28, 28], layer.place)
        if conf is not None and conf.norm_b:
            _put(store, "mean_value", conf.norm_a * conf.norm_b, layer.place)
        if conf is not None and conf.norm_a != 1:
            _put(store, "std_value", conf.norm_a, layer.place)
    return problems


def _replace_rgb(layer: TreeMap, sources: list[TreeMap]) -> list[Problem]:
    """Make an ImagePreprocess of RGBImage; its sources subtract the mean."""
    cropped, mean = (_node(layer, "rgbimage_conf", key) for key in ("cropsize", "meanfile"))
    # its records said their shape themselves: 32 x 32 in CIFAR, 256 x 256 in ImageNet
    size = 256 if isinstance(cropped, Scalar) and isinstance(cropped.value, int) and cropped.value > 32 else 32
    for source in sources:
        _put(_inner(source, "store_conf"), "shape", [3, size, size], layer.place)
        if isinstance(mean, Scalar) and mean.value:
            _put(_inner(source, "store_conf"), "mean_file", mean.value, layer.place)
    _drop(_node(layer, "rgbimage_conf"), "meanfile")
    layer.entries["type"].node = Scalar(layer.entries["type"].node.place, "ImagePreprocess")
    return []


REPLACE: dict[str, Callable[[TreeMap, list[TreeMap]], list[Problem]]] = {
    "ShardData": _replace_data,
    "LMDBData": _replace_data,
    "Mnist": _replace_mnist,
    "RGBImage": _replace_rgb,
}


# keys that SINGA writes and reads itself
INTERNAL: dict[type[Conf], set[str]] = {
    JobConf: {"id"},
    LayerConf: {"unroll_index", "partition_id", "num_partitions"},
    ParamConf: {"id", "owner", "partition_dim", "shape"},
}
TRUTH = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}


def read_job(text: str, file: str, registries: Mapping[str, Registry[Any]]) -> tuple[TreeMap, list[Problem]]:
    """Read a job in SINGA's text format.

    Parameters
    ----------
    text : str
    file : str
        What marks say the text is from.
    registries : mapping of str to Registry
        As for `load`: they know the blocks of registered classes.

    Returns
    -------
    root : TreeMap
    problems : list of Problem
        What the models cannot find wrong; the rest is left to them.

    Raises
    ------
    ConfigError
        The text is not in this format.
    """
    mapper = _Mapper(registries)
    root = mapper.block(parse(text, file), JobConf, ())
    problems = [Problem(p.path, p.message, p.mark, show(root, p.path)) for p in mapper.problems]
    return root, problems + apply_rules(root)


class _Kind(NamedTuple):
    """Type of a key of a model."""

    base: Any
    repeated: bool
    named: bool


def _kind(info: FieldInfo) -> _Kind:
    base, metadata, repeated = info.annotation, [*info.metadata], False
    while (origin := get_origin(base)) is not None:
        if origin is Annotated:
            metadata += base.__metadata__  # type: ignore[union-attr]
        elif origin is list:
            repeated = True
        elif origin not in (Union, UnionType):
            break
        base = next(arg for arg in get_args(base) if arg is not type(None))
    named = origin is Literal or any(isinstance(each, RegisteredName) for each in metadata)
    return _Kind(str if origin is Literal else dict if origin is dict else base, repeated, named)


class _Mapper:
    """Turns messages into blocks, guided by the models that check them later."""

    def __init__(self, registries: Mapping[str, Registry[Any]]) -> None:
        self.registries = registries
        self.problems: list[Problem] = []

    def block(self, message: TextMessage, model: type[Conf], path: Path) -> TreeMap:
        block = TreeMap(message.place, {})
        kinds = self.kinds(model)
        # a user_type goes before the type beside it, and an extension into the user_conf that is there
        for key in sorted(message.fields, key=lambda key: key in model.aliases or key.startswith("[")):
            fields = message.fields[key]
            if not fields or key in INTERNAL.get(model, ()):
                continue
            name = model.aliases.get(key, key)
            kind = kinds.get(name)
            if kind is not None:
                node = self.known(fields, kind, (*path, name))
                if key == "user_type" and isinstance(node, Scalar):
                    node = OwnType(node.place, node.value)
                block.entries[name] = TreeEntry(fields[0].place, node)
            elif key.startswith("[") and "user_conf" in model.model_fields:
                self.extend(block, key, fields, path)
            else:
                block.entries[name] = TreeEntry(fields[0].place, _free(fields))
        return block

    def kinds(self, model: type[Conf]) -> dict[str, _Kind]:
        """Return the types of a model's keys, including the blocks of registered classes."""
        kinds = {name: _kind(info) for name, info in model.model_fields.items()}
        if issubclass(model, PartConf) and model.kind in self.registries:
            known = blocks_of(self.registries[model.kind])
            known = {**DEPRECATED, **known} if model is LayerConf else known
            kinds |= {name: _Kind(block, False, False) for name, block in known.items()}
        return kinds

    def known(self, fields: list[TextField], kind: _Kind, path: Path) -> Tree:
        """Return the values of a known key."""
        if kind.repeated:
            items = [self.value(each.value, kind, (*path, i)) for i, each in enumerate(fields)]
            return Items(fields[0].value.place, items)
        if len(fields) > 1:
            message = f"this key is here twice. The first is at line {fields[0].place.line}."
            self.problems.append(Problem(path, message, fields[1].place))
        return self.value(fields[0].value, kind, path)

    def value(self, value: Value, kind: _Kind, path: Path) -> Tree:
        if isinstance(value, TextMessage):
            is_model = isinstance(kind.base, type) and issubclass(kind.base, Conf)
            return self.block(value, kind.base, path) if is_model else _free_block(value)
        item = value.value
        if kind.base is bool:
            item = TRUTH.get(item, item) if isinstance(item, Word) else bool(item) if item in (0, 1) else item
        elif kind.base is float and isinstance(item, Word) and item.lower() in ("inf", "infinity", "nan"):
            item = float(item)
        elif kind.named:
            item = str(item)
        elif kind.base is str and isinstance(item, Word):
            message = f"expected text, got the word {item}. Put it in quotes."
            self.problems.append(Problem(path, message, value.place))
        return Scalar(value.place, str(item) if isinstance(item, Word) else item)

    def extend(self, block: TreeMap, key: str, fields: list[TextField], path: Path) -> None:
        """Put the fields of an extension, or its one value, into ``user_conf``."""
        entry = block.entries.setdefault("user_conf", TreeEntry(fields[0].place, TreeMap(fields[0].value.place, {})))
        by_name: dict[str, list[TextField]] = {}
        for each in fields:
            name = key.strip("[]").rpartition(".")[2]
            inner = each.value.fields if isinstance(each.value, TextMessage) else {name: [each]}
            for name, values in inner.items():
                by_name.setdefault(name, []).extend(values)
        if not isinstance(entry.node, TreeMap):
            # the model says so
            return
        for name, values in by_name.items():
            if name in entry.node.entries:
                message = f"this key is here twice. The first is at line {entry.node.entries[name].place.line}."
                self.problems.append(Problem((*path, "user_conf", name), message, values[0].place))
            elif values:
                entry.node.entries[name] = TreeEntry(values[0].place, _free(values))


def _free(fields: list[TextField]) -> Tree:
    """Return free-form values: one as it is, several as a list."""
    nodes = [_free_value(each.value) for each in fields]
    return nodes[0] if len(nodes) == 1 else Items(fields[0].value.place, nodes)


def _free_value(value: Value) -> Tree:
    if isinstance(value, TextMessage):
        return _free_block(value)
    scalar = value.value
    return Scalar(value.place, TRUTH.get(scalar, str(scalar)) if isinstance(scalar, Word) else scalar)


def _free_block(message: TextMessage) -> TreeMap:
    entries = {key: TreeEntry(fields[0].place, _free(fields)) for key, fields in message.fields.items() if fields}
    return TreeMap(message.place, entries)
