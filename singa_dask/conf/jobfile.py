"""Reader of job files: reports all mistakes at once with their places; warns; makes changes of the command line."""

from __future__ import annotations

import bisect
import contextlib
import copy
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from singa_dask import fs, modules
from singa_dask.conf import blocks, singa_job, yaml_text
from singa_dask.conf.base import raw_value
from singa_dask.conf.findings import MISPLACED_KEY
from singa_dask.conf.job import JobConf
from singa_dask.conf.kinds import as_list
from singa_dask.conf.net import PHASES, LayerWiring, read_wiring
from singa_dask.conf.parts import PartConf, required_keys
from singa_dask.conf.singa_job import list_known_once, merge_own_types
from singa_dask.conf.singa_text import is_singa_text
from singa_dask.conf.updater import UpdaterConf
from singa_dask.conf.yaml_text import Items, Scalar, Tree, TreeEntry, TreeMap, locate, named, plain, show
from singa_dask.errors import ConfigError, DataError, Mark, Problem
from singa_dask.paths import PATH_KEYS, expand
from singa_dask.registry import Registry, suggest
from singa_dask.texts import decode

# keys whose values no model describes
FREE = ("user_conf", "storage_options")


def expand_paths(node: Tree, path: tuple[str | int, ...] = ()) -> list[Problem]:
    """Expand all paths in a job's tree, in place, and return the problems. ``path`` is that of the node."""
    inner: list[tuple[str | int, Tree]] = []
    if isinstance(node, TreeMap):
        # names of categories, by column, are no paths whatever the column is called
        inner = [(name, entry.node) for name, entry in node.entries.items() if name not in (*FREE, "categories")]
    elif isinstance(node, Items):
        inner = list(enumerate(node.items))
    elif isinstance(node.value, str) and next((k for k in reversed(path) if isinstance(k, str)), "") in PATH_KEYS:
        try:
            node.value = expand(node.value)
        except ConfigError as error:
            return [Problem(path, problem.message, node.place) for problem in error.problems]
    return [problem for key, each in inner for problem in expand_paths(each, (*path, key))]


def cluster_text(name: str) -> str | None:
    """Return the text of a built-in cluster file; None if the name is that of another file.

    Raises
    ------
    ConfigError
        There is neither a built-in cluster nor a file of this name.
    """
    if Path(name).exists() or "/" in name or "." in name:
        return None
    folder = resources.files("singa_dask") / "conf" / "clusters"
    known = sorted(each.name.removesuffix(".yaml") for each in folder.iterdir())
    if name not in known:
        message = f"no file of this name, and no cluster of ours. {suggest(name, known)}"
        raise ConfigError(Problem((), message, Mark(f"--cluster {name}")))
    return (folder / f"{name}.yaml").read_text("utf-8")


KEY = r"[^.\[\]=]+(?:\[[^\]]+\])*"
SET = re.compile(rf"({KEY}(?:\.{KEY})*)=(.*)", re.DOTALL)
# what a change of one key replaces
INSTEAD = {"train_steps": "epochs", "epochs": "train_steps"}
TOKEN = re.compile(r"([^.\[\]]+)|\[([^\]]+)\]")


class _NoPlace(Exception):
    """A path does not exist. Arguments: the part of it that exists, and the message."""


def apply_set(root: TreeMap, text: str) -> list[Problem]:
    """Change one value: ``updater.momentum=0.9``, ``neuralnet.layer[fc1].innerproduct_conf.num_output=20``.

    An item of a list is given by name or by index; where several have the name, all are changed. Values are
    read as YAML.

    Returns
    -------
    list of Problem
        What is wrong with the change; unknown keys are left to the models.
    """
    place = Mark(f"--set {text}")
    match = SET.fullmatch(text)
    if not match:
        message = "expected KEY=VALUE, such as updater.momentum=0.9 or neuralnet.layer[fc1].share_src_blobs=true."
        return [Problem((), message, place)]
    try:
        value, problems = yaml_text.parse(match[2], place.file, with_lines=False)
        tokens = [(token[1] is None, token[1] or token[2]) for token in TOKEN.finditer(match[1])]
        root.entries.pop(INSTEAD.get(match[1], ""), None)
        _put(root, tokens, value or Scalar(place, None), "")
    except ConfigError as error:
        return [Problem((), f"{problem.message} Put the value in quotes.", place) for problem in error.problems]
    except _NoPlace as error:
        shown, message = error.args
        return [Problem((), message, place, shown)]
    return problems


def _put(node: Tree | None, tokens: Sequence[tuple[bool, str]], value: Tree, shown: str) -> Tree:
    """Return the node with the value set at the path of the tokens; missing mappings are created."""
    if not tokens:
        return copy.deepcopy(value)
    (is_item, name), rest = tokens[0], tokens[1:]
    if is_item:
        return _put_item(node, name, rest, value, shown)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        node = TreeMap(value.place, {})
    if not isinstance(node, TreeMap):
        what = "a list; say which item, as in [0]" if isinstance(node, Items) else "a value without keys"
        raise _NoPlace(shown, f"this is {what}.")
    inner = f"{shown}.{name}" if shown else name
    old = node.entries.get(name)
    inner_node = _put(old.node if old else None, rest, value, inner)
    node.entries[name] = TreeEntry(old.place if old else value.place, inner_node)
    return node


def _put_item(node: Tree | None, name: str, rest: Sequence[tuple[bool, str]], value: Tree, shown: str) -> Tree:
    if node is None:
        raise _NoPlace(shown, f"there is no item {name!r}: the job has no such list.")
    if not isinstance(node, Items):
        node = Items(node.place, [node])
    chosen = [i for i, item in enumerate(node.items) if named(item) == name]
    if not chosen and name.isdecimal() and int(name) < len(node.items):
        chosen = [int(name)]
    if not chosen:
        names = {named(item) or str(i) for i, item in enumerate(node.items)}
        raise _NoPlace(shown, f"there is no item {name!r}. {suggest(name, names)}")
    for i in chosen:
        node.items[i] = _put(node.items[i], rest, value, f"{shown}[{name}]")
    return node


def replace_cluster(root: TreeMap, text: str, file: str) -> list[Problem]:
    """Replace the job's cluster by that of a cluster file, with or without ``cluster:`` above it.

    Raises
    ------
    ConfigError
        The file is not YAML, or no mapping.
    """
    node, problems = yaml_text.parse(text, file)
    if not isinstance(node, TreeMap):
        raise ConfigError(Problem((), "expected the keys of a cluster, such as nworker_groups.", Mark(file, 1, 1)))
    own = node.entries.pop("cluster", None)
    if own is None:
        problems = [Problem(("cluster", *p.path), p.message, p.mark) for p in problems]
        own = TreeEntry(node.place, node)
    else:
        problems += [
            Problem((key,), "a cluster file holds nothing beside cluster.", entry.place)
            for key, entry in node.entries.items()
        ]
    root.entries["cluster"] = own
    return problems


# what places in a file from standard input are said to be in
STDIN = "<stdin>"


@dataclass(frozen=True)
class JobFile:
    """A job, the text that it was read from, and the place of every key in it.

    Attributes
    ----------
    job : JobConf
        The job, changes from the command line included.
    text : str
        Content of the file.
    is_singa : bool
        Whether it is in SINGA's own format.
    """

    job: JobConf
    text: str
    _root: TreeMap = field(repr=False)
    is_singa: bool = False

    def locate(self, error: ConfigError) -> ConfigError:
        """Return the same error with the place in the file of each problem that has a path."""
        return ConfigError([_locate(self._root, problem) for problem in error.problems])

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """Give errors in the job, which are raised in this context, the places in the file."""
        try:
            yield
        except ConfigError as error:
            raise self.locate(error) from None

    def in_order(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return problems with the places of their keys, in the order of the file."""
        located = [_locate(self._root, _at_key(self._root, problem)) for problem in problems]
        return sorted(located, key=lambda problem: _order(problem, self._root.place.file))

    def resolved(self) -> str:
        """Write the job as YAML with every default; it loads back to an equal job."""
        return yaml_text.dump(self.job.model_dump(exclude_none=True))

    def given(self) -> str:
        """Write the job as YAML, without the defaults of keys that were not given; it loads back to an equal job."""
        return yaml_text.dump(_brief(self.job.model_dump(exclude_unset=True)), brief=True)


def load(
    path: str | os.PathLike[str],
    sets: Iterable[str] = (),
    cluster_file: str | os.PathLike[str] | None = None,
    registries: Mapping[str, Registry[Any]] | None = None,
) -> JobFile:
    """Read a job file; ``~``, ``$VAR`` and ``${VAR}`` in paths are expanded as in a shell.

    Parameters
    ----------
    path : path
        Path or URL of a YAML file, ``-`` for standard input; or of one in SINGA's own format, told by the suffix
        ``.conf`` or by its text.
    sets, cluster_file, registries
        See `loads`.

    Raises
    ------
    ConfigError
        With every mistake, in the order of the file.
    """
    file = os.fspath(path)
    return loads(_read(file), STDIN if file == "-" else file, sets, cluster_file, registries)


def loads(
    text: str,
    file: str,
    sets: Iterable[str] = (),
    cluster_file: str | os.PathLike[str] | None = None,
    registries: Mapping[str, Registry[Any]] | None = None,
    with_lines: bool = True,
) -> JobFile:
    """Read the text of a job, as `load` does.

    Parameters
    ----------
    text : str
    file : str
        What places in errors say the text is from.
    sets : iterable of str
        Changes, ``updater.learning_rate.base_lr=0.1``; made after the cluster is replaced.
    cluster_file : path, optional
        File whose block replaces the job's ``cluster``, or the name of one of ours, e.g. ``allreduce``.
    registries : mapping of str to Registry, optional
        Known names for ``layer``, ``updater``, ``schedule``, ``initialiser``, ``algorithm`` and ``store``;
        kinds that are not there are not checked. With them the job's modules are loaded.
    with_lines : bool
        Whether places have a line and column.

    Raises
    ------
    ConfigError
        With every mistake, in the order of the text.
    """
    is_singa = file.endswith(".conf") or is_singa_text(text)
    root: Tree | None
    if is_singa:
        root, problems = singa_job.read_job(text, file, registries or {})
    else:
        root, problems = yaml_text.parse(text, file, with_lines)
        problems += blocks.expand(root) if isinstance(root, TreeMap) else []
    if not isinstance(root, TreeMap):
        what = "it is empty" if root is None else "a list or a single value stands at its top"
        raise ConfigError(Problem((), f"expected the keys of a job, such as neuralnet; {what}.", Mark(file, 1, 1)))
    if cluster_file is not None:
        cluster = os.fspath(cluster_file)
        ours = cluster_text(cluster)
        place = cluster if ours is None else f"--cluster {cluster}"
        problems += replace_cluster(root, _read(cluster) if ours is None else ours, place)
    for change in sets:
        problems += apply_set(root, change)
    problems += expand_paths(root)
    values = plain(root)
    if registries is not None:
        wrong = _load_modules(values, registries)
        problems += wrong
        # what is in modules that cannot be loaded is not known
        registries = None if wrong else registries
    try:
        job = JobConf.model_validate(values, context={"registries": registries})
    except ValidationError as error:
        mistakes = [
            Problem(each["loc"], each["msg"], locate(root, each["loc"], at_key=each["type"] == MISPLACED_KEY))
            for each in error.errors(include_url=False)
        ]
        problems += merge_own_types(root, mistakes)
    if problems:
        located = [_locate(root, problem) for problem in problems]
        raise ConfigError(list_known_once(sorted(located, key=lambda problem: _order(problem, file))))
    return JobFile(job, text, root, is_singa)


def _load_modules(values: Mapping[str, Any], registries: Mapping[str, Registry[Any]]) -> list[Problem]:
    """Load the modules of a job and return the problems; the model reports entries that are not texts."""
    paths = as_list(values.get("modules"))
    if not all(isinstance(path, str) for path in paths):
        return []
    try:
        modules.load(modules.read(paths), registries.values())
    except ConfigError as error:
        return list(error.problems)
    return []


def _brief(value: Any, key: str = "") -> Any:
    """Return a job's values with lists of one scalar as that scalar; free-form values stay unchanged."""
    if isinstance(value, dict) and key not in FREE:
        return {name: _brief(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return value[0] if len(value) == 1 and not isinstance(value[0], dict) else [_brief(item) for item in value]
    return value


def _read(file: str) -> str:
    """Return a file's text."""
    try:
        if fs.local_path(file) is None:
            raw = fs.read_bytes(file)
        else:
            raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except DataError as error:
        raise ConfigError(Problem((), str(error).removeprefix(f"{file}: "), Mark(file))) from None
    except OSError as error:
        inside = Path(file) / "job.yaml"
        hint = f" The job of the run that is there: {inside}." if inside.is_file() else ""
        raise ConfigError(Problem((), f"cannot read this file: {error.strerror}.{hint}", Mark(file))) from None
    try:
        return decode(raw, file)
    except DataError as error:
        wrong: Any = error.__cause__
        head = wrong.object[: wrong.start]
        place = Mark(file, head.count(b"\n") + 1, len(head) - head.rfind(b"\n"))
        raise ConfigError(Problem((), "expected UTF-8 text; this byte is not.", place)) from None


def _locate(root: Tree, problem: Problem) -> Problem:
    shown = problem.shown_path or show(root, problem.path)
    return Problem(problem.path, problem.message, problem.mark or locate(root, problem.path), shown)


def _at_key(root: Tree, problem: Problem) -> Problem:
    """Give a problem the place of its key, unless the value comes from another file or the command line."""
    key, value = locate(root, problem.path, at_key=True), locate(root, problem.path)
    return replace(problem, mark=problem.mark or (key if key.file == value.file else value))


def _order(problem: Problem, file: str) -> tuple[bool, bool, int, int]:
    """Sort the job file's problems first, then those of the cluster file and of the command line."""
    mark = problem.mark or Mark(file)
    return mark.file != file, not mark.line, mark.line, mark.column


# Warnings about a valid job: keys that nothing reads, and likely mistakes.
#
# Each is a `Problem` whose message states the fact first and then what to do. `runtime.job.checks` has those that
# need nets.


SOFTMAX = ("Softmax", "CudnnSoftmax")
# by loss: the activation that it computes itself, and the layers that compute it
ACTIVATIONS = {
    "SoftmaxLoss": ("softmax", SOFTMAX),
    "CudnnSoftmaxLoss": ("softmax", SOFTMAX),
    "SigmoidCrossEntropyLoss": ("sigmoid", ("Sigmoid",)),
}
# a part of the names of layers that read images
IMAGE_LAYERS = ("Conv", "Pool", "LRN", "ImagePreprocess")
UPDATER_KEYS = ("momentum", "delta")


def find_warnings(job: JobConf, registries: Mapping[str, Registry[Any]], training: bool = True) -> list[Problem]:
    """Return the warnings that need no nets.

    Parameters
    ----------
    job : JobConf
    registries : mapping of str to Registry
        As for `load`. User-defined parts are not checked.
    training : bool
        Whether the job is to be trained: else nothing is said of its updater and algorithm.
    """
    problems = [*_unread_blocks(job, registries["layer"]), *_activation_twice(job), *_channels_last(job)]
    if training and job.trains:
        problems += [*_unread_updater_keys(job.updater, registries), *_unread_algorithm_block(job, registries)]
        problems += _rate_that_ends(job, registries["schedule"])
        if job.debug and not job.disp_freq:
            problems.append(
                Problem(("debug",), "nothing is written: set disp_freq, the steps from one time to the next.")
            )
    return problems


def _is_own(registry: Registry[Any], name: str) -> bool:
    """Tell whether a part is user-defined."""
    return not registry.find(name).__module__.startswith("singa_dask.")


def _unread_blocks(job: JobConf, layers: Registry[Any]) -> Iterator[Problem]:
    """Yield the blocks of layers that their types do not read."""
    for index, layer in enumerate(job.neuralnet.layer):
        if _is_own(layers, layer.type):
            continue
        # a type may read the block of a class that it extends, too
        reads = list(dict.fromkeys(key for cls in layers.find(layer.type).__mro__ for key in _own_block_key(cls)))
        hint = f"It reads {' and '.join(reads)}." if reads else "It reads no block."
        blocks = [*layer.blocks, *(["user_conf"] if layer.user_conf else [])]
        for name in [name for name in blocks if name not in reads]:
            yield Problem(("neuralnet", "layer", index, name), f"{layer.type} does not read this block. {hint}")


def _activation_twice(job: JobConf) -> Iterator[Problem]:
    """Yield the losses that read the activation that they compute themselves."""
    nodes = read_wiring(job.neuralnet)
    for node in nodes:
        activation, kinds = ACTIVATIONS.get(node.type, ("", ()))
        source = _below(node, nodes, kinds)
        if source:
            instead = f"Read {source.sources[0]!r} instead." if source.sources else "Read what that layer reads."
            message = (
                f"{node.type} computes the {activation} itself, and {source.name!r} is a {source.type} already: "
                f"it would be taken twice. {instead}"
            )
            yield Problem(("neuralnet", "layer", node.index, "srclayers", 0), message)


def _below(loss: LayerWiring, nodes: list[LayerWiring], kinds: tuple[str, ...]) -> LayerWiring | None:
    """Return the layer of one of some types that a loss reads first in some phase."""
    below = [node for node in nodes if loss.sources[:1] == (node.name,) and node.type in kinds]
    return next((node for node in below if any(p in node.phases and p in loss.phases for p in PHASES)), None)


def _channels_last(job: JobConf) -> Iterator[Problem]:
    """Yield the shapes of records that look like (height, width, channels) and are read by layers for images."""
    nodes = read_wiring(job.neuralnet)
    readers = {source for node in nodes if any(part in node.type for part in IMAGE_LAYERS) for source in node.sources}
    for index, layer in enumerate(job.neuralnet.layer):
        shape = raw_value(layer.blocks.get("store_conf"), "shape", list, [])
        if layer.name in readers and len(shape) == 3 and shape[2] in (1, 3, 4) and min(shape[:2]) > 4:
            first = [shape[2], *shape[:2]]
            message = (
                f"{shape} looks like height, width, channels, but is taken as channels, height, width. "
                f"Set shape: {first}, and layout: NHWC if the records are stored so."
            )
            yield Problem(("neuralnet", "layer", index, "store_conf", "shape"), message)


def _rate_that_ends(job: JobConf, schedules: Registry[Any]) -> Iterator[Problem]:
    """Yield that the learning rate is 0 in the last tenth of the steps, or longer."""
    conf, n = job.updater.learning_rate, job.train_steps
    if not n or _is_own(schedules, conf.type):
        return
    rate = schedules.find(conf.type)(conf)
    if rate(0) and rate(n * 9 // 10) == rate(n - 1) == 0:
        first = bisect.bisect_left(range(n), True, key=lambda step: rate(step) == 0)
        message = f"the learning rate is 0 from step {first} of {n} on. Raise change_freq in its block to train longer."
        yield Problem(("updater", "learning_rate"), message)


def _unread_updater_keys(updater: UpdaterConf, registries: Mapping[str, Registry[Any]]) -> Iterator[Problem]:
    """Yield the keys that the update rule, and the schedule of its learning rate, do not read."""
    kind, registry = updater.type, registries["updater"]
    if not _is_own(registry, kind):
        reads = _reads(registry, kind)
        known = f"Beside what all updaters read, it reads {', '.join(reads)}." if reads else ""
        for key in (*UPDATER_KEYS, *updater.blocks):
            if key not in reads and _is_given(updater, key):
                yield Problem(("updater", key), f"{kind} does not read this key. {known}".rstrip())
    rate, registry = updater.learning_rate, registries["schedule"]
    if _is_own(registry, rate.type):
        return
    reads = _reads(registry, rate.type)
    hint = f"It reads {reads[0]}." if reads != ["base_lr"] else "It reads base_lr alone."
    for key in ("base_lr", *rate.blocks):
        if key not in reads and _is_given(rate, key):
            what = "key" if key == "base_lr" else "block"
            yield Problem(("updater", "learning_rate", key), f"{rate.type} does not read this {what}. {hint}")


def _reads(registry: Registry[Any], name: str) -> list[str]:
    """Return the keys that a registered class reads, beside those that all of its kind read: its block first."""
    cls = registry.find(name)
    return [*_block_key(cls), *cls.reads]


def _own_block_key(cls: Any) -> list[str]:
    """Return the key of the block that a class itself declares."""
    block = vars(cls).get("block")
    return [block.block_key] if block else []


def _block_key(cls: Any) -> list[str]:
    return [cls.block.block_key] if cls.block else []


def _unread_algorithm_block(job: JobConf, registries: Mapping[str, Registry[Any]]) -> Iterator[Problem]:
    """Yield the blocks that the algorithm does not read."""
    conf, registry = job.train_one_batch, registries["algorithm"]
    reads = _block_key(registry.find(conf.alg))
    for key in conf.blocks if not _is_own(registry, conf.alg) else ():
        if key not in reads and _is_given(conf, key):
            readers = [name for name in registry.names() if key in _block_key(registry.find(name))]
            message = f"{conf.alg} does not read this block. Only {', '.join(readers)} does."
            yield Problem(("train_one_batch", key), message)


def _is_given(conf: PartConf, key: str) -> bool:
    """Tell whether a key has another value than its default, which a resolved job says of every key."""
    if key in conf.blocks:
        block = conf.blocks[key]
        return bool(required_keys(type(block))) or block != type(block)()
    return bool(getattr(conf, key) != type(conf).model_fields[key].get_default(call_default_factory=True))
