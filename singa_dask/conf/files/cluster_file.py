"""Cluster files: the built-in files, and how a file replaces the cluster of a job."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from singa_dask.conf.files import yaml_text
from singa_dask.conf.files.tree import TreeEntry, TreeMap
from singa_dask.errors import ConfigError, Mark, Problem
from singa_dask.wording import suggest

# built-in clusters in which each worker has a server in its process, so that each 2 is the number of workers
SIZED = ("allreduce", "hogwild")


def cluster_text(name: str) -> str | None:
    """Return the text of a built-in cluster file; None if ``name`` is the path of another file.

    A name such as ``allreduce:3`` contains the number of workers.

    Raises
    ------
    ConfigError
        There is no built-in cluster and no file of this name, or the cluster does not accept a number of workers.
    """
    if Path(name).exists() or "/" in name or "." in name:
        return None
    folder = resources.files("singa_dask") / "conf" / "files" / "clusters"
    known = sorted(each.name.removesuffix(".yaml") for each in folder.iterdir())
    place, (topology, colon, number) = Mark(f"--cluster {name}"), name.partition(":")
    if topology not in known:
        message = f"there is no file and no built-in cluster of this name. {suggest(topology, known)}"
        raise ConfigError(Problem((), message, place))
    text = (folder / f"{topology}.yaml").read_text("utf-8")
    if not colon:
        return text
    if topology not in SIZED:
        message = (
            f"a number of workers is unclear for {topology}. Expected one for {' or '.join(SIZED)}. Otherwise pass "
            "--set cluster.nworkers_per_group=N and other keys of cluster, or write a cluster file."
        )
        raise ConfigError(Problem((), message, place))
    if not re.fullmatch(r"[1-9]\d*", number):
        message = f"{number!r} is not a number of workers. Expected such as {topology}:3."
        raise ConfigError(Problem((), message, place))
    return re.sub(r"^(\w+): 2$", rf"\g<1>: {number}", text, flags=re.MULTILINE)


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
            Problem((key,), "a cluster file has only the key cluster. Remove this key.", entry.place)
            for key, entry in node.entries.items()
        ]
    root.entries["cluster"] = own
    return problems
