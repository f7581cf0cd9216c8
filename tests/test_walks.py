"""The walks of CONTRIBUTING.md: their files exist, are counted, and have to do with each other."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_layering import PACKAGE, imports

TEXT = (PACKAGE.parent / "CONTRIBUTING.md").read_text()


def walks() -> dict[str, str]:
    """Return the text of each walk by its name."""
    section = re.search(r"^## \w+ walks\n(.*?)^## ", TEXT, re.DOTALL | re.MULTILINE)
    assert section is not None
    return dict(re.findall(r"^- \*\*(.*?)\*\*(.*?)(?=^- \*\*|\Z)", section[1], re.DOTALL | re.MULTILINE))


def files_of(walk: str) -> list[str]:
    """Return the files of a walk in order; one without a folder is in the folder of the one before it."""
    found, folder = list[str](), ""
    for name in re.findall(r"`([\w/]+\.py)`", walk):
        folder = name.rpartition("/")[0] or folder
        found.append(f"{folder}/{name.rpartition('/')[2]}")
    return list(dict.fromkeys(found))


@cache
def modules_of(file: str) -> set[str]:
    """Return the modules of ours that a file imports, also by a name that a package passes on."""
    found, text = set[str](), (PACKAGE / file).read_text()
    for _, name in imports(PACKAGE / file):
        package, _, each = name.rpartition(".")
        found |= {name, package}
        # a name of a package, or a package whose names are used
        for of, used in ((package, {each}), (name, set(re.findall(rf"\b{each}\.(\w+)", text)))):
            init = PACKAGE.parent / of.replace(".", "/") / "__init__.py"
            if init.is_file():
                found |= {f"{of}.{module}" for module, names in passed_on(init).items() if names & used}
    return found


@cache
def passed_on(init: Path) -> dict[str, set[str]]:
    """Return the names that a package passes on, or imports when they are named, by the module that has them."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(init.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = node.module.rpartition(f"{init.parent.name}.")[2]
            found.setdefault(module, set()).update(alias.name for alias in node.names)
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(value, ast.List):
                found.setdefault(str(key.value), set()).update(ast.literal_eval(value))
    return found


def module_of(file: str) -> str:
    return f"singa_dask.{file.removesuffix('.py').replace('/', '.')}"


@pytest.mark.parametrize("name", walks())
def test_the_files_of_a_walk_exist_and_belong_together(name: str) -> None:
    walk = walks()[name]
    files = files_of(walk)
    assert [file for file in files if not (PACKAGE / file).is_file()] == []
    number = re.search(r"(\d+) files", walk)
    assert number is not None and int(number[1]) == len(files), files
    alone = []
    for file in files:
        others = [other for other in files if other != file]
        if not any(module_of(file) in modules_of(each) or module_of(each) in modules_of(file) for each in others):
            alone.append(file)
    assert alone == []
