"""Registries map names in a job file to classes. Each kind of part has its own registry.

A decorator registers a class. Layers, stores and GPU kernels are imported on first use; `Registry.add_modules` lists
the names in each module. A name with a dot, ``module.Class``, refers to a class in a user's module.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar, cast

from singa_dask import modules
from singa_dask.errors import ConfigError
from singa_dask.wording import suggest

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """The classes of one kind that a job can name.

    Parameters
    ----------
    kind : str
        Name of the kind of part in errors, such as ``"layer type"`` or ``"updater"``.

    Attributes
    ----------
    base : type or None
        Base class that all parts of this kind extend.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.base: type[T] | None = None
        self._classes: dict[str, type[T]] = {}
        self._homes: dict[str, str] = {}
        self._hidden: set[str] = set()

    def register(self, *names: str, hidden: bool = False) -> Callable[[C], C]:
        """Register the decorated class under each of ``names``; by default under its own name.

        Pass ``hidden=True`` for a class that only this package inserts. Jobs cannot name it, and errors never suggest
        it.
        """

        def decorate(cls: C) -> C:
            for name in names or (cls.__name__,):
                if name in self._classes or (name in self and self._homes.get(name) != cls.__module__):
                    raise ValueError(f"{self.kind} {name!r} is registered twice")
                self._classes[name] = cls
                if hidden:
                    self._hidden.add(name)
            return cls

        return decorate

    def add_modules(self, package: str, names: Mapping[str, str]) -> None:
        """Declare which names each module of a package registers. The names are separated by spaces.

        A module is imported when one of its names is looked up.
        """
        self._homes |= {name: f"{package}.{module}" for module, parts in names.items() for name in parts.split()}

    def find(self, name: str) -> type[T]:
        """Return the class registered as ``name``. The name may begin with SINGA's k.

        Raises
        ------
        ConfigError
            The name is unknown, or a name with a dot is not a class of this kind.
        """
        if "." in name:
            return self._of_module(name)
        for key in (name, name[1:] if name.startswith("k") else name):
            if (cls := self.get(key)) is not None:
                return cls
        raise ConfigError(f"unknown {self.kind} {name!r}. {suggest(name, self.names())}")

    def _of_module(self, name: str) -> type[T]:
        """Return the class that ``module.Class`` refers to."""
        place, _, class_name = name.rpartition(".")
        module = modules.import_module(place)
        found = getattr(module, class_name, None)
        if not inspect.isclass(found):
            known = [each for each, cls in vars(module).items() if self._is_part(cls) and cls.__module__ == place]
            hint = f" {suggest(class_name, known)}" if known else ""
            raise ConfigError(f"no class {class_name!r} in {place}.{hint}")
        if not self._is_part(found):
            assert self.base is not None
            word = self.base.__name__
            article = "an" if word[0] in "AEIOU" else "a"
            raise ConfigError(f"{name} is not {article} {word.lower()}: it must extend singa_dask.{word}.")
        return cast(type[T], found)

    def _is_part(self, value: Any) -> bool:
        return inspect.isclass(value) and (self.base is None or (issubclass(value, self.base) and value != self.base))

    def get(self, name: str) -> type[T] | None:
        """Return the class registered as ``name``, or None."""
        if name in self._homes and name not in self._classes:
            importlib.import_module(self._homes[name])
        return self._classes.get(name)

    def names_of(self, cls: type) -> list[str]:
        """Return all names of a class, sorted."""
        return sorted(name for name, each in self._classes.items() if each is cls)

    def forget(self, places: Collection[str]) -> None:
        """Remove the classes that these modules have registered."""
        # in place, because another thread may register classes meanwhile
        for name, cls in list(self._classes.items()):
            if cls.__module__ in places:
                del self._classes[name]

    def names(self) -> list[str]:
        """Return the names that a job can use, sorted."""
        return sorted({*self._classes, *self._homes} - self._hidden)

    def classes(self) -> list[type[T]]:
        """Return the classes in the order of `names`."""
        return [cls for name in self.names() if (cls := self.get(name)) is not None]

    def is_hidden(self, name: str) -> bool:
        """Return whether jobs cannot use the part ``name``, because only the system inserts it."""
        return name in self._hidden

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self._homes
