"""How large the package is, and how it is cut: files, lines, imports, functions, names, cycles.

``python -m tests.size`` prints it.
"""

from __future__ import annotations

import ast
import collections
import io
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "singa_dask"


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that docstrings take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body:
            # A string that stands alone is a docstring, those of fields too.
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                if isinstance(statement.value.value, str) and statement.end_lineno:
                    lines.update(range(statement.lineno, statement.end_lineno + 1))
    return lines


def code_lines(text: str, docstrings: set[int]) -> set[int]:
    """Return the numbers of the lines that hold code: no docstrings, comments, blanks."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstrings


def import_lines(tree: ast.Module) -> int:
    """Count the lines of imports and of ``__all__``."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        named = isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        )
        if isinstance(node, ast.Import | ast.ImportFrom) or named:
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def imported_modules(tree: ast.AST, known: set[str]) -> set[str]:
    """Return the modules of the package that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.add(full if full in known else node.module)
    return names & known


def import_graph(trees: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Return what each module of the package imports of it, under ``TYPE_CHECKING`` too."""
    known = {module_of(path) for path in trees}
    return {module_of(path): imported_modules(tree, known) - {module_of(path)} for path, tree in trees.items()}


def names_used_twice(trees: Mapping[Path, ast.Module]) -> dict[str, list[str]]:
    """Return the public classes that share their name with one of another module, with their modules."""
    classes: dict[str, set[str]] = collections.defaultdict(set)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_":
                classes[node.name].add(module_of(path))
    return {name: sorted(modules) for name, modules in sorted(classes.items()) if len(modules) > 1}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                groups.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return groups


def modules_of_run() -> int:
    """Count the modules of the package that the command ``run`` has imported when a small job has ended."""
    program = (
        "import sys, contextlib\n"
        "from singa_dask.cli.main import main\n"
        "sys.argv = ['singa-dask', 'run', 'configs/digits/mlp.yaml', '--set', 'train_steps=1']\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "print(sum(name.split('.')[0] == 'singa_dask' for name in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    return int(done.stderr.split()[-1])


def main() -> None:
    """Print the figures, one a line."""
    paths = sorted(PACKAGE.rglob("*.py"))
    texts = {path: path.read_text() for path in paths}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    docstrings = {path: docstring_lines(tree) for path, tree in trees.items()}
    lines = sum(len(text.splitlines()) for text in texts.values())
    code = sum(len(code_lines(text, docstrings[path])) for path, text in texts.items())
    graph = import_graph(trees)
    importers = collections.Counter(other for others in graph.values() for other in others)
    functions = sorted(
        (node.end_lineno or node.lineno) - node.body[0].lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    twice = names_used_twice(trees)
    print("files", len(paths))
    print("lines", lines)
    print("lines of code", code)
    print(f"docstrings {sum(map(len, docstrings.values())) / lines:.1%} of lines")
    print(f"imports and __all__ {sum(map(import_lines, trees.values())) / lines:.1%} of lines")
    print("modules with one importer", sum(importers[module] == 1 for module in graph))
    print("functions: median", statistics.median(functions), "lines, 90 %", functions[len(functions) * 9 // 10])
    print("longest file", max(len(text.splitlines()) for text in texts.values()))
    print("public classes of one name", len(twice), twice)
    groups = cycles(graph)
    print("cycles", len(groups), groups)
    print("modules that run imports", modules_of_run())


if __name__ == "__main__":
    main()
