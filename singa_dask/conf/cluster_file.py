"""Cluster files: the built-in ones, and the replacement of a job's cluster."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from singa_dask.conf import yaml_text
from singa_dask.conf.places import TreeEntry, TreeMap
from singa_dask.errors import ConfigError, Mark, Problem
from singa_dask.registry import suggest


def cluster_text(name: str) -> str | None:
    """Return the text of a built-in cluster file; None for the path of another file.

    Raises
    ------
    ConfigError
        There is no built-in cluster and no file of this name.
    """
    if Path(name).exists() or "/" in name or "." in name:
        return None
    folder = resources.files("singa_dask") / "conf" / "clusters"
    known = sorted(each.name.removesuffix(".yaml") for each in folder.iterdir())
    if name not in known:
        message = f"no file and no built-in cluster of this name. {suggest(name, known)}"
        raise ConfigError(Problem((), message, Mark(f"--cluster {name}")))
    return (folder / f"{name}.yaml").read_text("utf-8")


def replace_cluster(root: TreeMap, text: str, file: str) -> list[Problem]:
    """Replace the cluster of a job by a cluster file, which may have ``cluster:`` at its top.

    Raises
    ------
    ConfigError
        The file is not YAML, or not a mapping.
    """
    node, problems = yaml_text.parse(text, file)
    if not isinstance(node, TreeMap):
        raise ConfigError(Problem((), "expected the keys of a cluster, such as nworker_groups.", Mark(file, 1, 1)))
    own = node.entries.pop("cluster", None)
    if own is None:
        problems = [Problem(("cluster", *p.path), p.message, p.mark) for p in problems]
        own = TreeEntry(node.place, node)
    else:
        problems += [
            Problem((key,), "expected only the key cluster in a cluster file.", entry.place)
            for key, entry in node.entries.items()
        ]
    root.entries["cluster"] = own
    return problems
