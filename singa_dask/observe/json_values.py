"""Write values as JSON that any program can read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from singa_dask.redaction import redact


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON. Numbers that are not finite become null, and secrets are removed."""
    return redact(json.dumps(finite(value), indent=indent, default=float))


def finite(value: Any) -> Any:
    """Return a value in which numbers that are not finite are replaced by None."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
