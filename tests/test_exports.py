"""Faces of packages say what they offer, in order, and offer what they say; elsewhere names say it.

What others import there begins with no underscore, and is imported from the module that defines it.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import singa_dask
from tests.test_layering import source

PACKAGE = Path(__file__).parents[1] / "singa_dask"
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def order(name: str) -> tuple[int, str]:
    """Return the key that ruff's RUF022 sorts by: constants, classes, the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_all_is_sorted_and_true() -> None:
    wrong = []
    for name, path in MODULES.items():
        module = importlib.import_module(name)
        names = getattr(module, "__all__", None)
        if names is None:
            wrong += [f"{name}: a face without __all__"] if path.name == "__init__.py" else []
            continue
        if list(names) != sorted(set(names), key=order):
            wrong.append(f"{name}: __all__ is not in order: {', '.join(names)}")
        wrong += [f"{name}: __all__ names {each}, which is not there" for each in names if not hasattr(module, each)]
    assert not wrong, "\n".join(wrong)


def test_the_package_lists_what_it_offers() -> None:
    assert {*singa_dask.__all__, "SingaClassifier"} <= {*dir(singa_dask)}
    assert all(hasattr(singa_dask, name) for name in dir(singa_dask))


@pytest.mark.long
def test_what_is_imported_from_a_module_of_ours_is_exported_there() -> None:
    wrong = []
    own = {name: source(path).defined for name, path in MODULES.items()}
    for name, path in MODULES.items():
        for node in source(path).imports:
            if not isinstance(node, ast.ImportFrom) or node.module not in MODULES:
                continue
            exported = getattr(importlib.import_module(node.module), "__all__", None)
            if exported is None:
                exported = {each for each in own[node.module] if not each.startswith("_")}
            for alias in node.names:
                if alias.name not in {"*", *exported} and f"{node.module}.{alias.name}" not in MODULES:
                    wrong.append(f"{name}:{node.lineno}: {node.module}.{alias.name} is not offered there")
    assert not wrong, "\n".join(wrong)
