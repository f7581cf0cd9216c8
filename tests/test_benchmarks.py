"""The benchmarks name what there is: no test runs all of them, so names that moved are looked for here."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import singa_dask

ROOT = Path(__file__).parents[1]
FILES = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("*.py")) if path.stem != "__init__"}
OURS = ("singa_dask", "benchmarks", "tests")
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md", *(ROOT / "docs").rglob("*.md"))


def wrong_imports(path: Path) -> Iterator[str]:
    """Yield what a file imports of ours that is not there, in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] not in OURS:
            continue
        assert node.module
        if wrong := attempt(node.module):
            yield f"line {node.lineno}: {wrong}"
        module = sys.modules.get(node.module)
        for alias in node.names if module else ():
            if not hasattr(module, alias.name) and attempt(f"{node.module}.{alias.name}"):
                yield f"line {node.lineno}: {node.module} has no {alias.name}"


def attempt(name: str) -> str:
    """Import a module; return what is wrong, which a package of others that is missing is not."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        return str(error) if (error.name or "").split(".")[0] in OURS else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.long
def test_all_are_imported() -> None:
    """In a process of its own: benchmarks register layers. Where one needs another package, its imports are checked."""
    command = [sys.executable, "-m", "tests.test_benchmarks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == FILES.keys()
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_pages_name_benchmarks_that_exist() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in PAGES
        for name in re.findall(r"\bbenchmarks\.([a-z]\w*)", path.read_text())
        if name not in FILES
    ]
    assert not wrong


def test_each_line_of_the_table_is_a_benchmark_with_a_section() -> None:
    text = (ROOT / "benchmarks/README.md").read_text()
    names = re.findall(r"^\| \[(\w+)\]\(#\1\) ", text, re.MULTILINE)
    assert names == re.findall(r"^## (\w+)$", text, re.MULTILINE)
    assert set(names) <= set(FILES)


@pytest.mark.long
def test_all_compares_checkouts_and_writes_their_values(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.all", "--only", "import", "help", "--share", "0.001", "--minutes", "0"]
    command += ["--out", str(tmp_path), "--against"]
    done = subprocess.run([*command, str(ROOT)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    assert done.stdout.splitlines()[-1] == str(path)
    found = json.loads(path.read_text())
    assert found["this"] == found["other"]
    assert found["this"]["version"] == singa_dask.__version__
    assert found["measures"].keys() == {"import", "help"}
    for measured in found["measures"].values():
        assert not measured["missing"]
        assert [values.keys() for values in measured["rounds"]] == [{"this", "other"}] * 2
        assert all(
            one["value"] > 0 and len(one["load"]) == 2 for values in measured["rounds"] for one in values.values()
        )
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{tmp_path}: not a checkout of singa-dask" in done.stderr


if __name__ == "__main__":
    told = {each: attempt(f"benchmarks.{each}") or "; ".join(wrong_imports(file)) for each, file in FILES.items()}
    print(json.dumps(told))
