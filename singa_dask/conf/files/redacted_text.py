"""Hidden secrets of storage options in the text of a job file, in YAML and in SINGA's format."""

from __future__ import annotations

import contextlib
import re

import yaml

from singa_dask.conf.files.singa_text import end_of_scalar, parse
from singa_dask.conf.files.tree import Items, Scalar, Tree, TreeMap
from singa_dask.conf.files.yaml_text import composed
from singa_dask.errors import ConfigError
from singa_dask.redaction import HIDDEN, is_open, redact

OPTIONS = "storage_options"
# an anchor at the start of a YAML scalar, or after its tag
ANCHOR = re.compile(r"\A(?:!\S*\s+)?(&\S+\s+)")


def redact_job(text: str) -> str:
    """Hide secrets in the text of a job, and change nothing else."""
    # remove the byte order mark, because only some loaders count it as a character
    order_mark, text = (text[:1], text[1:]) if text.startswith("\ufeff") else ("", text)
    root = composed(text)
    spans = _secrets_of_singa(text) if root is None else _secrets(root, "", False, set())
    for start, stop in sorted(spans, reverse=True):
        value = text[start:stop]
        anchor, after = ANCHOR.search(value), value[len(value.rstrip()) :]
        text = f'{text[:start]}{anchor[1] if anchor else ""}"{HIDDEN}"{after}{text[stop:]}'
    return order_mark + redact(text)


def _inner_key(key: str, name: str) -> str:
    """Return the key that decides whether a value is secret.

    Below the name of a secret, all values are secret.
    """
    return name if is_open(key, "") else key


def _secrets(
    node: yaml.Node, key: str, in_options: bool, seen: set[tuple[yaml.Node, str, bool]]
) -> set[tuple[int, int]]:
    """Return (start, stop) of the secret values below a YAML node.

    A value that aliases repeat has one place, at its anchor. ``key`` is empty outside of storage options.
    """
    spans: set[tuple[int, int]] = set()
    if (node, key, in_options) in seen:
        return spans
    seen.add((node, key, in_options))
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            inner = _inner_key(key, str(name.value)) if in_options else ""
            spans |= _secrets(value, inner, in_options or name.value == OPTIONS, seen)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            spans |= _secrets(value, key, in_options, seen)
    elif isinstance(node, yaml.ScalarNode) and in_options and node.value and not is_open(key, node.value):
        spans.add((node.start_mark.index, node.end_mark.index))
    return spans


def _secrets_of_singa(text: str) -> set[tuple[int, int]]:
    """Return (start, stop) of the secret values in a text of SINGA's format."""
    spans: set[tuple[int, int]] = set()
    starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def visit(node: Tree, key: str, in_options: bool) -> None:
        if isinstance(node, TreeMap):
            for name, entry in node.entries.items():
                visit(entry.node, _inner_key(key, name) if in_options else "", in_options or name == OPTIONS)
        elif isinstance(node, Items):
            for item in node.items:
                visit(item, key, in_options)
        elif isinstance(node, Scalar) and in_options and not is_open(key, str(node.value)):
            start = starts[node.place.line - 1] + node.place.column - 1
            spans.add((start, end_of_scalar(text, start)))

    with contextlib.suppress(ConfigError):
        visit(parse(text, ""), "", False)
    return spans
