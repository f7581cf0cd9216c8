"""Job files without their secrets, as runs keep them."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from singa_dask.redaction import HIDDEN, is_open, redact

__all__ = ["redact_job"]


def redact_job(text: str) -> str:
    """Hide secrets in the text of a job, in YAML; the rest stays as it is, with comments."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        root = None
    for node in reversed(list(_secrets(root, "", False))):
        text = f'{text[: node.start_mark.index]}"{HIDDEN}"{text[node.end_mark.index :]}'
    return redact(text)


def _secrets(node: yaml.Node | None, key: str, in_options: bool) -> Iterator[yaml.Node]:
    """Yield the nodes of secret values below a key, in the order of the text."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _secrets(value, str(name.value), in_options or name.value == "storage_options")
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _secrets(value, key, in_options)
    elif isinstance(node, yaml.ScalarNode) and in_options and not is_open(key, node.value):
        yield node
