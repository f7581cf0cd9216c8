"""Reader of job files, which reports all mistakes at once with their places."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from singa_dask import fs, modules
from singa_dask.conf.files import layer_blocks, singa_job, yaml_text
from singa_dask.conf.files.cluster_file import cluster_text, replace_cluster
from singa_dask.conf.files.overrides import apply_set
from singa_dask.conf.files.singa_job import merge_own_types
from singa_dask.conf.files.singa_text import is_singa_text
from singa_dask.conf.files.tree import Items, Scalar, Tree, TreeMap, child, items, locate, plain, show
from singa_dask.conf.job import JobConf
from singa_dask.conf.kinds import BRIEF
from singa_dask.conf.mistakes import MISPLACED_KEY
from singa_dask.errors import ConfigError, DataError, Mark, Problem
from singa_dask.paths import PATH_KEYS, expand
from singa_dask.registry import Registry
from singa_dask.texts import decode

# keys whose values have a free form, or names of categories
FREE = ("user_conf", "storage_options", "categories")


def expand_paths(node: Tree, path: tuple[str | int, ...] = ()) -> list[Problem]:
    """Expand ``~`` and ``$VAR`` in all paths of a tree, in place, and return the problems.

    ``path`` is the path of ``node`` in the job.
    """
    inner: list[tuple[str | int, Tree]] = []
    if isinstance(node, TreeMap):
        # names of categories are not paths, even if a column is called like a key whose value is a path
        inner = [(name, entry.node) for name, entry in node.entries.items() if name not in FREE]
    elif isinstance(node, Items):
        inner = list(enumerate(node.items))
    elif isinstance(node.value, str) and next((k for k in reversed(path) if isinstance(k, str)), "") in PATH_KEYS:
        try:
            node.value = expand(node.value)
        except ConfigError as error:
            return [Problem(path, problem.message, node.place) for problem in error.problems]
    return [problem for key, each in inner for problem in expand_paths(each, (*path, key))]


# name of standard input in the places of errors
STDIN = "<stdin>"


@dataclass(frozen=True)
class JobFile:
    """A job, the text from which it was read, and the places of its keys in this text.

    Attributes
    ----------
    job : JobConf
        The job, with changes of the command line.
    text : str
        Content of the file.
    is_singa : bool
        Whether the file is in SINGA's own format.
    """

    job: JobConf
    text: str
    _root: TreeMap = field(repr=False)
    is_singa: bool = False

    def locate(self, error: ConfigError) -> ConfigError:
        """Add the places in the file to the problems of an error."""
        return ConfigError([_locate(self._root, problem) for problem in error.problems])

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """Add the places in the file to errors raised in this context."""
        try:
            yield
        except ConfigError as error:
            raise self.locate(error) from None

    def in_order(self, problems: Iterable[Problem]) -> list[Problem]:
        """Sort problems by the places of their keys in the file, and add these places."""
        located = [_locate(self._root, _at_key(self._root, problem)) for problem in problems]
        return sorted(located, key=lambda problem: _order(problem, self._root.place.file))

    def resolved(self) -> str:
        """Return the job as YAML with all defaults. Loading this YAML gives an equal job."""
        return yaml_text.dump(self.job.model_dump(exclude_none=True))

    def given(self) -> str:
        """Return the job as YAML with only the keys that were set. Loading this YAML gives an equal job."""
        return yaml_text.dump(self.job.model_dump(exclude_unset=True, context=BRIEF), brief=True)


def load(
    path: str | os.PathLike[str],
    sets: Iterable[str] = (),
    cluster_file: str | os.PathLike[str] | None = None,
    registries: Mapping[str, Registry[Any]] | None = None,
    set_option: str = "--set",
) -> JobFile:
    """Read a job file; ``~``, ``$VAR`` and ``${VAR}`` in paths are expanded as in a shell.

    Parameters
    ----------
    path : path
        Path or URL of a file in YAML or in SINGA's own format, or ``-`` for standard input. A file is in SINGA's
        format if its suffix is ``.conf`` or its text looks like that format.
    sets, cluster_file, registries, set_option
        See `loads`.

    Raises
    ------
    ConfigError
        The job is wrong. The error lists all mistakes, in the order of the file.
    """
    file = os.fspath(path)
    name = STDIN if file == "-" else file
    return loads(_read(file), name, sets, cluster_file, registries, set_option=set_option)


def loads(
    text: str,
    file: str,
    sets: Iterable[str] = (),
    cluster_file: str | os.PathLike[str] | None = None,
    registries: Mapping[str, Registry[Any]] | None = None,
    with_lines: bool = True,
    set_option: str = "--set",
) -> JobFile:
    """Read a job from text; see `load`.

    Parameters
    ----------
    text : str
    file : str
        Name of the text in errors.
    sets : iterable of str
        Changes such as ``updater.learning_rate.base_lr=0.1``, which are made after the cluster is replaced.
    cluster_file : path, optional
        File whose block replaces ``cluster``, or the name of a built-in cluster, e.g. ``allreduce``.
    registries : mapping of str to Registry, optional
        Registries for ``layer``, ``updater``, ``schedule``, ``initialiser``, ``algorithm`` and ``store``; names of
        other kinds are not checked. With registries, the job's modules are loaded.
    with_lines : bool
        Whether the places of values include line and column.

    Raises
    ------
    ConfigError
        The job is wrong. The error lists all mistakes, in the order of the text.
    """
    is_singa = file.endswith(".conf") or is_singa_text(text)
    root: Tree | None
    if is_singa:
        root, problems = singa_job.read_job(text, file, registries or {})
    else:
        root, problems = yaml_text.parse(text, file, with_lines)
        problems += layer_blocks.expand(root) if isinstance(root, TreeMap) else []
    if not isinstance(root, TreeMap):
        what = "the file is empty" if root is None else "got a list or a single value"
        raise ConfigError(Problem((), f"expected the keys of a job, such as neuralnet; {what}.", Mark(file, 1, 1)))
    if cluster_file is not None:
        cluster = os.fspath(cluster_file)
        ours = cluster_text(cluster)
        place = cluster if ours is None else f"--cluster {cluster}"
        problems += replace_cluster(root, _read(cluster) if ours is None else ours, place)
    for change in sets:
        problems += apply_set(root, change, set_option)
    problems += expand_paths(root)
    if registries is not None:
        wrong = _load_modules(root, registries)
        problems += wrong
        # if a module cannot be loaded, the names that it registers are unknown
        registries = None if wrong else registries
    try:
        job = JobConf.model_validate(plain(root), context={"registries": registries})
    except ValidationError as error:
        mistakes = [
            Problem(each["loc"], each["msg"], locate(root, each["loc"], at_key=each["type"] == MISPLACED_KEY))
            for each in error.errors(include_url=False)
        ]
        problems += merge_own_types(root, mistakes)
    if problems:
        located = [_locate(root, problem) for problem in problems]
        raise ConfigError(_list_known_once(sorted(located, key=lambda problem: _order(problem, file))))
    return JobFile(job, text, root, is_singa)


def _load_modules(root: TreeMap, registries: Mapping[str, Registry[Any]]) -> list[Problem]:
    """Load the modules of a job, and return the problems. The model reports entries that are not texts."""
    nodes = items(child(root, "modules"))
    paths = [each.value for each in nodes if isinstance(each, Scalar) and isinstance(each.value, str)]
    if len(paths) < len(nodes):
        return []
    try:
        modules.load(modules.read(paths), registries.values())
    except ConfigError as error:
        return list(error.problems)
    return []


def _read(file: str) -> str:
    """Return the text of a file."""
    try:
        path = fs.local_path(file)
        if path is None:
            raw = fs.read_bytes(file)
        else:
            raw = sys.stdin.buffer.read() if file == "-" else path.read_bytes()
    except DataError as error:
        raise ConfigError(Problem((), str(error).removeprefix(f"{file}: "), Mark(file))) from None
    except OSError as error:
        inside = Path(file) / "resolved.yaml"  # with the changes of the command or of Python
        hint = f" This is a run directory; its job is {inside}." if inside.is_file() else ""
        hint = fs.question_beside(file) if isinstance(error, FileNotFoundError) else hint
        raise ConfigError(Problem((), f"cannot read this file: {error.strerror}.{hint}", Mark(file))) from None
    try:
        return decode(raw, file)
    except DataError as error:
        wrong: Any = error.__cause__
        head = wrong.object[: wrong.start]
        place = Mark(file, head.count(b"\n") + 1, len(head) - head.rfind(b"\n"))
        raise ConfigError(Problem((), "this byte is not UTF-8. Save the file as UTF-8 text.", place)) from None


def _locate(root: Tree, problem: Problem) -> Problem:
    shown = problem.shown_path or show(root, problem.path)
    return Problem(problem.path, problem.message, problem.mark or locate(root, problem.path), shown)


def _at_key(root: Tree, problem: Problem) -> Problem:
    """Add a place to a problem: of the key, or of a value from another file or the command line."""
    key, value = locate(root, problem.path, at_key=True), locate(root, problem.path)
    return replace(problem, mark=problem.mark or (key if key.file == value.file else value))


def _order(problem: Problem, file: str) -> tuple[bool, bool, int, int]:
    """Return the sort key of a problem, by which problems of the job file come first."""
    mark = problem.mark or Mark(file)
    return mark.file != file, not mark.line, mark.line, mark.column


def _list_known_once(problems: Sequence[Problem]) -> list[Problem]:
    """Shorten the list of known names in a message if an earlier message has the same list."""
    seen: set[str] = set()
    shown = []
    for problem in problems:
        head, words, names = problem.message.partition(" Known: ")
        shown.append(replace(problem, message=f"{head} Known: see above.") if names in seen else problem)
        seen |= {names} if words else set()
    return shown
