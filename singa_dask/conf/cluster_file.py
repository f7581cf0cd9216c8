"""Cluster files: the built-in ones, and how one takes the place of the cluster of a job."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from singa_dask.conf import yaml_text
from singa_dask.conf.places import TreeEntry, TreeMap
from singa_dask.errors import ConfigError, Mark, Problem
from singa_dask.registry import suggest


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


def replace_cluster(root: TreeMap, text: str, file: str) -> list[Problem]:
    """Replace the job's cluster by that of a cluster file, with or without ``cluster:`` above it.

    Raises
    ------
    ConfigError
        The file is not YAML, or no mapping.
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
            Problem((key,), "a cluster file holds nothing beside cluster.", entry.place)
            for key, entry in node.entries.items()
        ]
    root.entries["cluster"] = own
    return problems
