"""Python modules of users, read where a job is started, and loaded from their text in each process.

A module has the name of its file, so that the modules of a job can import each other. Tracebacks show lines of these
modules even on machines without the file. `blame` finds the line of a user's module that caused an error.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import threading
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, Protocol

from singa_dask.errors import ConfigError, Problem, SingaError


class Source(NamedTuple):
    """The text of one module.

    Attributes
    ----------
    name : str
        Name of the module in imports: ``mymodule`` or ``mypackage.part``.
    file : str
        Path of the file, as the job has it.
    text : str
    is_package : bool
        Whether the file is the ``__init__.py`` of a directory.
    """

    name: str
    file: str
    text: str
    is_package: bool = False


class Names(Protocol):
    """The methods of `Registry` that this module uses."""

    def forget(self, places: Collection[str]) -> None:
        """Remove the classes that these modules have registered."""


class _FromText(MetaPathFinder, ExecutionLoader):
    """Imports the modules of jobs from their texts."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        # installed modules from which jobs have taken types
        self.installed: set[str] = set()
        # modules of the job that was loaded last
        self.current: frozenset[str] = frozenset()
        self.loads = False
        # what uses modules now, and these modules without their paths; see `using`
        self.users: list[tuple[str, dict[str, Source]]] = []
        self.lock = threading.RLock()

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        source = self.sources.get(fullname)
        if source is None:
            return None
        spec = spec_from_file_location(fullname, source.file, loader=self)
        if spec is not None and source.is_package:
            # find only submodules that are part of the job, so that a package has the same submodules on all machines
            spec.submodule_search_locations = []
        return spec

    def get_source(self, fullname: str) -> str:
        return self.sources[fullname].text

    def get_filename(self, fullname: str) -> str:
        return self.sources[fullname].file

    def is_package(self, fullname: str) -> bool:
        return self.sources[fullname].is_package

    def take(self, source: Source) -> None:
        """Add a module, replacing an earlier module of the same name."""
        sys.modules.pop(source.name, None)
        self.sources[source.name] = source
        # without a modification time, linecache does not compare the entry with the file
        linecache.cache[source.file] = (len(source.text), None, source.text.splitlines(keepends=True), source.file)

    def is_used(self, name: str) -> bool:
        """Return whether a job or task of this process uses a module."""
        return any(name in used for _, used in self.users)

    def drop(self, names: Iterable[str]) -> None:
        """Forget modules."""
        for name in names:
            sys.modules.pop(name, None)
            self.sources.pop(name, None)


# The finder is global, because an interpreter has a single table of modules and a single list of finders.
_FINDER = _FromText()
sys.meta_path.insert(0, _FINDER)


# -- reading -----------------------------------------------------------------------------------------------------------


def read(paths: Iterable[str]) -> list[Source]:
    """Read modules.

    Parameters
    ----------
    paths : iterable of str
        Files ``name.py``, or directories with an ``__init__.py``, which are read as packages.

    Raises
    ------
    ConfigError
        A module cannot be read. The error lists all such modules, with paths from the top of the job.
    """
    sources: dict[str, Source] = {}
    problems = []
    for i, path in enumerate(paths):
        try:
            texts = list(_read_one(path))
            if texts[0].name in sources:
                raise ConfigError(
                    f"{path}: another module has the same name, {texts[0].name!r}. Rename one of the files."
                )
            sources |= {source.name: source for source in texts}
        except ConfigError as error:
            problems.append(Problem(("modules", i), str(error)))
    if problems:
        raise ConfigError(problems)
    return list(sources.values())


def _read_one(path: str) -> Iterator[Source]:
    """Yield the module in a file, or a package followed by its modules."""
    file = Path(path)
    inside = file / "__init__.py"
    if not inside.is_file() and not (file.is_file() and file.suffix == ".py"):
        what = "not a Python file, name.py" if file.exists() else "no such file"
        raise ConfigError(f"{path}: {what}. Paths are relative to the directory in which the command is started.")
    # resolve the path, because a path such as "." has no name
    name = file.resolve().stem if inside.is_file() else file.stem
    _check_name(path, name, inside if inside.is_file() else file)
    if not inside.is_file():
        yield Source(name, path, _text(file))
        return
    for part in sorted(file.rglob("*.py"), key=lambda part: (part != inside, part)):
        steps = part.relative_to(file).with_suffix("").parts
        is_package = steps[-1] == "__init__"
        yield Source(".".join((name, *steps[: -1 if is_package else None])), str(part), _text(part), is_package)


def _check_name(path: str, name: str, file: Path) -> None:
    """Raise an error for a name that cannot be imported or that another module has."""
    if not name.isidentifier():
        raise ConfigError(f"{path}: {name!r} is not a valid name for a module. Use letters, digits and _ only.")
    spec = None if name in sys.stdlib_module_names else PathFinder.find_spec(name)
    origin = spec.origin if spec else None
    if name in sys.stdlib_module_names or (origin and Path(origin).resolve() != file.resolve()):
        whose = origin or "a module of Python itself"
        raise ConfigError(f"{path}: {name!r} is the name of another module, {whose}. Rename the file.")


def _text(file: Path) -> str:
    try:
        return decode_source(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: cannot read this file: {error.strerror}.") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: the file is not UTF-8 text: {error}.") from None


# -- loading -----------------------------------------------------------------------------------------------------------


def load(sources: Sequence[Source], registries: Iterable[Names] = ()) -> None:
    """Load the modules of a job, unless modules with the same texts are loaded already.

    Modules that a job or task of this process uses stay as they are; see `using`.

    Parameters
    ----------
    sources : sequence of Source
    registries : iterable of Registry
        Registries from which the classes of earlier versions of these modules are removed.

    Raises
    ------
    ConfigError
        A module cannot be loaded, or is used in another version. The error lists all such modules with the failing
        line, and paths from the top of the job.
    """
    with _FINDER.lock:
        names = [source.name for source in sources]
        if problems := list(_conflicts(sources)):
            raise ConfigError(problems)
        _FINDER.current = frozenset(names)
        if all(_FINDER.sources.get(source.name) == source for source in sources):
            return
        registries, fresh = list(registries), [source for source in sources if not _FINDER.is_used(source.name)]
        for registry in registries:
            registry.forget([source.name for source in fresh])
        for source in fresh:
            _FINDER.take(source)
        _FINDER.loads = True
        try:
            problems = list(_load_each(names))
        finally:
            _FINDER.loads = False
        if problems:
            unload([source.name for source in fresh], registries)
            raise ConfigError(problems)


@contextmanager
def using(sources: Sequence[Source], registries: Iterable[Names], user: str) -> Iterator[None]:
    """Load the modules of a job, and keep them loaded until the context ends.

    Meanwhile `load` refuses other versions of these modules.

    Parameters
    ----------
    sources, registries
        See `load`.
    user : str
        What uses the modules, for messages.
    """
    use = user, {source.name: source._replace(file="") for source in sources}
    with _FINDER.lock:
        load(sources, registries)
        _FINDER.users.append(use)
    try:
        yield
    finally:
        with _FINDER.lock:
            _FINDER.users.remove(use)


def _conflicts(sources: Sequence[Source]) -> Iterator[Problem]:
    """Yield a problem for each module that is in use in another version."""
    names = [source.name for source in sources]
    for source in sources:
        # another path of the same text is no other version
        same = source._replace(file="")
        user = next((user for user, used in _FINDER.users if used.get(source.name, same) != same), "")
        if user:
            message = (
                f"{source.file}: {user} runs in this process with another version of it. Rename the file, or wait for "
                f"the end of {user}."
            )
            yield _problem(names, source.name, message)


def _problem(names: Iterable[str], name: str, message: str) -> Problem:
    """Return a problem at the entry of ``modules`` with the module ``name``; ``names`` are all modules."""
    listed = list(dict.fromkeys(each.partition(".")[0] for each in names))
    return Problem(("modules", listed.index(name.partition(".")[0])), message)


def is_loading() -> bool:
    """Return whether this thread is just now loading a module for a job."""
    with _FINDER.lock:
        return _FINDER.loads


def unload(names: Collection[str], registries: Iterable[Names] = ()) -> None:
    """Unload modules of jobs, and remove their classes from registries."""
    with _FINDER.lock:
        _FINDER.drop(names)
        for registry in registries:
            registry.forget(names)


def _load_each(names: Sequence[str]) -> Iterator[Problem]:
    """Import modules, and yield each distinct error once: several modules may import the same failing one."""
    said = set()
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            message = _why_not_loaded(error)
            if message not in said:
                said.add(message)
                yield _problem(names, name, message)


def _why_not_loaded(error: Exception) -> str:
    """Return why a module cannot be imported, with the failing line first."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}."
    blamed = blame(error)
    message = blamed.text if blamed else str(error) if isinstance(error, SingaError) else repr(error)
    hint = ""
    if isinstance(error, ImportError):
        hint = " A module that yours imports must be installed on all machines of the job, or be listed in modules too."
    place = _place(error)
    return f"{place}: {message}{'' if message.endswith('.') else '.'}{hint}" if place else message


def loaded() -> dict[str, Source]:
    """Return the loaded modules of jobs by name."""
    return dict(_FINDER.sources)


def is_earlier(name: str) -> bool:
    """Return whether a module belongs to an earlier job, which has ended, and not to the job loaded last."""
    with _FINDER.lock:
        return name in _FINDER.sources and name not in _FINDER.current and not _FINDER.is_used(name)


def import_module(name: str) -> ModuleType:
    """Import the module that a type in a job file names.

    Raises
    ------
    ConfigError
        There is no such module, or it cannot be imported.
    """
    try:
        module = importlib.import_module(name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            file = f"{name.partition('.')[0]}.py"
            message = f"there is no module {name!r}. Install it, or list its file in the job, as modules: [{file}]."
            raise ConfigError(message) from None
        raise ConfigError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}.") from error
    if name not in _FINDER.sources and not name.startswith("singa_dask."):
        _FINDER.installed.add(name)
    return module


# -- errors in modules of jobs -----------------------------------------------------------------------------------------


class Blame(NamedTuple):
    """A failure of a user's code.

    Attributes
    ----------
    place : str
        File and line, ``mylayer.py:31``.
    text : str
        Type and message, ``ZeroDivisionError: division by zero``.
    traceback : str
        Traceback that begins with the first line of the user's code.
    """

    place: str
    text: str
    traceback: str


def blame(error: BaseException) -> Blame | None:
    """Return the error in a user's code that caused an exception, or None.

    The result is None if the user's code has raised a `SingaError`, because that is a deliberate message.
    """
    cause: BaseException | None = error
    passed: list[BaseException] = []
    # an exception that was raised again may be its own cause
    while isinstance(cause, SingaError) and cause not in passed:
        passed.append(cause)
        cause = cause.__cause__
    if cause is None or isinstance(cause, SingaError) or not (place := _place(cause)):
        return None
    text = str(error) if cause is not error else f"{type(cause).__name__}: {cause}"
    shown = traceback.format_exception(type(cause), cause, next(_entries(cause)))
    return Blame(place, text, "".join(shown))


def _place(error: BaseException) -> str:
    """Return file and line of the innermost call in a user's code; empty if there is none."""
    entries = list(_entries(error))
    return f"{entries[-1].tb_frame.f_code.co_filename}:{entries[-1].tb_lineno}" if entries else ""


def _entries(error: BaseException) -> Iterator[TracebackType]:
    """Yield the entries of a traceback that are in a user's code."""
    entry = error.__traceback__
    while entry is not None:
        name = entry.tb_frame.f_globals.get("__name__")
        if name in _FINDER.sources or name in _FINDER.installed:
            yield entry
        entry = entry.tb_next
