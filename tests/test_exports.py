"""Every module says what it offers, in order, and offers what it says; what others import is among it."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

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
    for name in MODULES:
        module = importlib.import_module(name)
        names = module.__all__
        if list(names) != sorted(set(names), key=order):
            wrong.append(f"{name}: __all__ is not in order: {', '.join(names)}")
        wrong += [f"{name}: __all__ names {each}, which is not there" for each in names if not hasattr(module, each)]
    assert not wrong, "\n".join(wrong)


def test_what_is_imported_from_a_module_of_ours_is_exported_there() -> None:
    wrong = []
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module not in MODULES:
                continue
            exported = {"*", *importlib.import_module(node.module).__all__}
            for alias in node.names:
                if alias.name not in exported and f"{node.module}.{alias.name}" not in MODULES:
                    wrong.append(f"{name}:{node.lineno}: {node.module}.{alias.name} is not in its __all__")
    assert not wrong, "\n".join(wrong)
