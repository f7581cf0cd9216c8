"""The house holds to its plan: imports point down, third parties stay in their rooms, files stay short."""

from __future__ import annotations

import ast
import configparser
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "singa_dask"
MAX_LINES = 800

LEVELS = {
    "cli": 18,
    "singa_dask": 17,
    "estimators": 16,
    "serving": 16,
    "exports": 15,
    "inference": 14,
    "jobs": 13,
    "planner": 12,
    "survey": 12,
    "runtime": 11,
    "testing": 10,
    "observe": 10,
    "api": 9,
    "training": 8,
    "net": 7,
    "inputs": 6,
    "layers": 5,
    "ops": 4,
    "data": 4,
    "comm": 4,
    "conf": 3,
    "fs": 2,
    "registry": 2,
    "modules": 1,
    "lazy": 1,
    "paths": 1,
    "arrays": 0,
    "cancellation": 1,
    "errors": 0,
    "redaction": -1,
    "shown": 0,
    "texts": 1,
    "version": 0,
    "wording": 0,
}
# Levels of the rooms inside a room. Its ``__init__`` stands above them.
INNER_LEVELS = {
    "conf": {
        "nn_stub": 12,
        "describe": 11,
        "json_schema": 10,
        "files": 9,
        "warnings": 9,
        "job": 8,
        "net": 7,
        "wiring_rules": 6,
        "layer": 5,
        "updater": 5,
        "cluster": 4,
        "metrics": 4,
        "parts": 4,
        "profile": 4,
        "base": 3,
        "kinds": 2,
        "mistakes": 1,
        "foreign_names": 0,
    },
    "conf/files": {
        "jobfile": 4,
        "cluster_file": 2,
        "overrides": 2,
        "redacted_text": 2,
        "singa_job": 3,
        "layer_blocks": 1,
        "singa_inputs": 1,
        "singa_rules": 2,
        "singa_text": 1,
        "yaml_text": 1,
        "clusters": 0,
        "tree": 0,
    },
    "data": {
        "convert": 9,
        "loading": 8,
        "sampler": 7,
        "order": 6,
        "random": 5,
        "stores": 4,
        "tables": 3,
        "codecs": 2,
        "blocks": 1,
        "split": 1,
        "types": 0,
        "warn_once": 0,
    },
    "data/tables": {
        "lags": 8,
        "row_encoder": 8,
        "encoder": 7,
        "table_reader": 7,
        "facts_learner": 6,
        "fill_counts": 6,
        "shared_scan": 6,
        "block_index": 5,
        "files": 5,
        "percents": 5,
        "spec": 5,
        "facts": 4,
        "frames": 4,
        "kept_columns": 4,
        "spelling": 3,
        "dates": 2,
        "row_selection": 2,
        "column_values": 1,
        "column_names": 0,
        "list_columns": 0,
        "scaling": 0,
    },
    "data/tables/files": {
        "number_lines": 2,
        "open_parts": 2,
        "csv_part": 1,
        "json_part": 1,
        "parquet_part": 1,
        "columnar": 0,
        "csv_text": 0,
        "folder_keys": 0,
        "json_text": 0,
        "row_groups": 0,
        "table_part": 0,
        "whole_files": 0,
    },
    "fs": {
        "open_bytes": 8,
        "range_reader": 7,
        "versions": 6,
        "outputs": 6,
        "ownership": 6,
        "patterns": 5,
        "writing": 5,
        "files": 4,
        "decompression": 4,
        "urls": 3,
        "hdfs": 2,
        "host_files": 2,
        "cache": 2,
        "sources": 2,
        "part_folders": 1,
        "io_threads": 1,
        "range_file": 1,
        "client_errors": 0,
        "cache_folder": 0,
        "checksums": 0,
        "daemon_threads": 0,
        "locks": 0,
        "mapped_file": 0,
        "mounts": 0,
        "retry": 0,
    },
    "fs/hdfs": {
        "clients": 3,
        "filesystem": 2,
        "connection": 1,
        "block_locations": 1,
        "native_errors": 0,
        "hadoop_conf": 0,
    },
    "observe": {
        "programs": 3,
        "pictures": 3,
        "files": 2,
        "learning": 1,
        "terminal": 1,
        "event_texts": 0,
        "json_values": 0,
    },
    "runtime": {"job": 3, "units": 2, "checkpoints": 1, "dashboard": 0, "planning": 0},
    "runtime/job": {
        "client": 9,
        "scheduler": 8,
        "driver": 7,
        "checks": 6,
        "dask_tasks": 5,
        "dask_worker": 4,
        "state": 3,
        "job_end": 2,
        "calls": 1,
        "names": 1,
        "client_security": 0,
        "frames": 0,
        "limits": 0,
        "patience": 0,
    },
}
# What a room may not import although it lies lower: it is handed it. It may name its types.
HANDED = {"layers": {"ops", "comm", "data", "fs"}, "inputs": {"ops", "comm"}, "net": {"comm"}, "training": {"comm"}}
TYPES = ("singa_dask.ops.contract.",)
# What runs on a GPU; imported when one is asked for.
GPU_FILES = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("ops/cupy/*.py")}
# Who may import a package: rooms, or files.
CONFINED = {
    "asyncio": {"comm", "serving"},
    "click": {"cli"},
    "cudnn": GPU_FILES,
    "cupy": GPU_FILES,
    "cupy_backends": GPU_FILES,
    "dask": {"comm", "runtime", "observe", "planner", "jobs", "inference", "estimators", "cli"},
    "distributed": {"comm", "runtime", "observe", "planner", "jobs", "inference", "estimators", "cli"},
    "fsspec": {
        "fs/client_errors.py",
        "fs/files.py",
        "fs/hdfs/clients.py",
        "fs/hdfs/filesystem.py",
        "fs/host_files.py",
        "fs/urls.py",
        "fs/writing.py",
    },
    "prometheus_client": {"runtime/dashboard/pages.py", "runtime/dashboard/prometheus.py"},
    "pydantic": {"conf"},
    "rich": {"observe", "cli"},
    "sklearn": {"estimators"},
    "starlette": {"serving"},
    "tornado": {"comm", "runtime"},
    "uvicorn": {"serving"},
    "yaml": {"conf"},
}

# Modules that come with a package of another name.
DISTRIBUTIONS = {
    "google_crc32c": "google-crc32c",
    "hdfs_native": "hdfs-native",
    "pydantic_core": "pydantic",
    "yaml": "PyYAML",
}

# What brings a shared library, and no module.
LIBRARIES = {"onednn-cpu-gomp"}

# What has an entry point of ours, and no import: "dask singa".
HOSTS = {"dask"}

# Modules of extras: what needs them says what to install.
OPTIONAL = {
    "PIL",
    "cudnn",
    "cupy",
    "cupy_backends",
    "prometheus_client",
    "simplejpeg",
    "sklearn",
    "starlette",
    "uvicorn",
}

FILES = sorted(PACKAGE.rglob("*.py"))


def shown(path: Path) -> str:
    """Name a file of the package as the tables do."""
    return path.relative_to(PACKAGE).as_posix()


def room_of(path: Path) -> str:
    """Return the level that a file is on."""
    first = path.relative_to(PACKAGE).parts[0]
    return {"__init__.py": "singa_dask", "__main__.py": "cli"}.get(first, first.removesuffix(".py"))


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the full name of every module, or module's name, that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LazyModule":
        yield ast.literal_eval(node.args[0])


def below(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement below a node of a syntax tree, without what is in its expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from below(child)


def defined(tree: ast.Module) -> set[str]:
    """Return the names that a module defines at its top, or passes on, as ``import x as x`` does."""
    found: set[str] = set()
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.name for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, ast.If | ast.Try):
            pending += [
                *node.body,
                *node.orelse,
                *(each for handler in getattr(node, "handlers", ()) for each in handler.body),
            ]
    return found


class Source(NamedTuple):
    """What a file imports, anywhere in it and inside of its functions, and the names that it defines."""

    imports: list[ast.AST]
    inner: list[ast.AST]
    defined: set[str]


@functools.cache
def source(path: Path) -> Source:
    """Read a file; its syntax tree is not kept."""
    text = path.read_text()
    tree, walk = ast.parse(text), ast.walk if "LazyModule(" in text else below
    functions = [node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = [node for function in functions for node in walk(function) if any(imported(node))]
    return Source([node for node in walk(tree) if any(imported(node))], inner, defined(tree))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of everything a file imports, anywhere in it."""
    for node in source(path).imports:
        for name in imported(node):
            yield node.lineno, name


def own_room(name: str) -> str | None:
    """Return the room that an imported name of ours belongs to, None for others."""
    top, *rest = name.split(".")
    if top != "singa_dask":
        return None
    return rest[0] if rest and rest[0] in LEVELS else "singa_dask"


def test_imports_point_down() -> None:
    wrong = []
    for path in FILES:
        here = room_of(path)
        for line, name in imports(path):
            there = own_room(name)
            if there is None or there == here or (there in HANDED.get(here, ()) and name.startswith(TYPES)):
                continue
            if LEVELS[there] >= LEVELS[here] or there in HANDED.get(here, ()):
                wrong.append(f"{shown(path)}:{line}: {here} may not import {name}")
    assert not wrong, "\n".join(wrong)


def test_imports_inside_a_room_point_down() -> None:
    wrong = []
    for room, levels in INNER_LEVELS.items():
        within = f"singa_dask.{room.replace('/', '.')}."
        for path in sorted((PACKAGE / room).rglob("*.py")):
            here = path.relative_to(PACKAGE / room).with_suffix("").parts[0]
            if here == "__init__":
                continue
            for line, name in imports(path):
                there = name.removeprefix(within).split(".")[0]
                is_above = there != here and levels.get(there, levels[here]) >= levels[here]
                if f"{name}." == within or (name.startswith(within) and is_above):
                    wrong.append(f"{shown(path)}:{line}: {room}/{here} may not import {name}")
    assert not wrong, "\n".join(wrong)


def test_third_parties_are_confined() -> None:
    wrong = []
    for path in FILES:
        for line, name in imports(path):
            rooms = CONFINED.get(name.split(".")[0])
            if rooms is not None and room_of(path) not in rooms and shown(path) not in rooms:
                wrong.append(f"{shown(path)}:{line}: {name} belongs in {', '.join(sorted(rooms))}")
    assert not wrong, "\n".join(wrong)


def test_a_layer_loads_neither_records_nor_kernels() -> None:
    script = "import sys, singa_dask.layers.norm; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    ours = [name.removeprefix("singa_dask.") for name in loaded if name.startswith("singa_dask")]
    assert len(ours) <= 34, sorted(ours)
    assert {"comm", "data", "fs"}.isdisjoint(name.partition(".")[0] for name in ours)
    assert {"fsspec", "hdfs_native", "pyarrow", "yaml"}.isdisjoint(loaded)
    assert [name for name in ours if re.match(r"ops\.(numpy|onednn|cupy)", name)] == []


def test_decisions_about_jobs_load_no_nets() -> None:
    script = "import sys, singa_dask.runtime.job.state.job_state; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = {name.removeprefix("singa_dask.") for name in done.stdout.split() if name.startswith("singa_dask.")}
    assert {"layers", "inputs", "net", "training", "ops"}.isdisjoint(name.partition(".")[0] for name in ours)
    assert not [name for name in ours if name.startswith(("runtime.units", "runtime.checkpoints"))]


def test_no_import_is_relative() -> None:
    wrong = [
        f"{shown(path)}:{node.lineno}: relative import"
        for path in FILES
        for node in source(path).imports
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not wrong, "\n".join(wrong)


def test_no_import_of_ours_inside_a_function() -> None:
    """Verbs import what they need, once they are called, so that help is shown at once."""
    wrong = [
        f"{shown(path)}:{node.lineno}: {name}"
        for path in FILES
        if room_of(path) != "cli"
        for node in source(path).inner
        for name in imported(node)
        if own_room(name)
    ]
    assert not wrong, "\n".join(wrong)


def test_files_are_short() -> None:
    files = [
        *FILES,
        *(path for folder in ("tests", "benchmarks", "examples") for path in sorted((ROOT / folder).rglob("*.py"))),
    ]
    sizes = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in files}
    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}


def test_every_room_has_a_level() -> None:
    assert {room_of(path) for path in FILES} <= set(LEVELS)
    for room, levels in INNER_LEVELS.items():
        assert {path.stem for path in (PACKAGE / room).iterdir() if path.name[0] != "_"} == set(levels)


def test_third_parties_are_declared() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    declared = set(re.findall(r"^[\w-]+", setup["options"]["install_requires"], re.MULTILINE))
    used = {name.split(".")[0] for path in FILES for _, name in imports(path)}
    third = used - set(sys.stdlib_module_names) - {"singa_dask"} - OPTIONAL
    assert {DISTRIBUTIONS.get(name, name) for name in third} | LIBRARIES | HOSTS == declared
