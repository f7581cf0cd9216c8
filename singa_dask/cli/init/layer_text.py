"""The text of a layer in a job file."""

from __future__ import annotations

import json
import re


def layer(name: str, type: str, source: str, *lines: str, said: str = "") -> str:
    """Return a layer of the job file, with a comment line above it."""
    first = [f"# {said}"] if said else []
    sources = [f"srclayers: [{source}]"] if source else []
    rest = [f"  {line}" for line in (f"type: {type}", *sources, *lines)]
    return "".join(f"    {line}\n" for line in (*first, f"- name: {name}", *rest))


def scores(name: str, source: str, n: int, *lines: str, said: str = "") -> str:
    """Return a layer that computes ``n`` scores."""
    return layer(name, "InnerProduct", source, f"innerproduct_conf: {{num_output: {n}}}", *lines, said=said)


def as_yaml(text: str) -> str:
    """Return a text as YAML, in quotes if YAML requires them."""
    return text if re.fullmatch(r"[A-Za-z_./][\w./-]*", text) else json.dumps(text, ensure_ascii=False)
