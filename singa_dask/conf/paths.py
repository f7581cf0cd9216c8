"""Expansion of paths in a job file, as in a shell, and the cluster files of the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from singa_dask.conf.tree import Block, Items, Tree
from singa_dask.errors import ConfigError, Mark, Problem
from singa_dask.paths import expand
from singa_dask.registry import suggest

__all__ = ["FREE", "cluster_text", "expand_paths"]

# keys of a job that hold paths or URLs, by name alone: no other key is called so
PATH_KEYS = {
    "checkpoint_path", "dir", "mean_file", "meanfile", "modules", "path", "std_file", "vocab_path", "workspace",
}  # fmt: skip
# keys whose values no model describes
FREE = ("user_conf", "storage_options")


def expand_paths(node: Tree, path: tuple[str | int, ...] = ()) -> list[Problem]:
    """Expand all paths in a job's tree, in place, and return the problems. ``path`` is that of the node."""
    inner: list[tuple[str | int, Tree]] = []
    if isinstance(node, Block):
        inner = [(name, entry.node) for name, entry in node.entries.items() if name not in FREE]
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
