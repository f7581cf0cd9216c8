"""CostTable: a file of times that were measured on this kind of machine, and the keys of these times."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.fs.cache_folder import COSTS, cache_folder
from singa_dask.layers import Layer
from singa_dask.runtime.planning.machine import cpu_count
from singa_dask.version import __version__

logger = logging.getLogger(__name__)

NO_MATTER = {"name", "srclayers", "param", "include", "exclude", "partition_dim", "location"}
"""Keys of a layer that do not affect its time, as long as its shapes stay the same."""

Times = tuple[float, float]
"""Two times in seconds: on an idle machine, and while all cores are busy."""


def cost_file() -> Path:
    """Return the path of the file with measured times, for this version and this kind of machine."""
    text = ""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    name = f"{model[1] if model else platform.processor()} {cpu_count()} cores {__version__}.json"
    return cache_folder() / COSTS / re.sub(r"[^\w.]+", "-", name)


class CostTable:
    """Measured times by key and size, stored in a file. An unreadable file is ignored with a warning."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._times = self._read()

    def _read(self) -> dict[str, dict[int, Times]]:
        try:
            stored = json.loads(self.file.read_text())
            return {
                key: {int(size): (float(alone), float(beside)) for size, (alone, beside) in sizes.items()}
                for key, sizes in stored.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            logger.warning("%s: cannot be read, so costs are measured again: %s", self.file, error)
            return {}

    def save(self) -> None:
        """Write the file. Times that other processes have written to it meanwhile are kept."""
        times = self._read()
        for key, sizes in self._times.items():
            times[key] = {**times.get(key, {}), **sizes}
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            fs.write_atomic(str(self.file), json.dumps(times))
        except OSError as error:
            logger.warning("%s: measured costs cannot be kept: %s", self.file, error)

    def add(self, key: str, times: Times, size: int = 1) -> None:
        """Store the times of a key and size, to be written by `save`."""
        self._times.setdefault(key, {})[size] = times

    def get(self, key: str, size: int = 1) -> Times | None:
        """Return the times of a key for a size; None if too few sizes were measured to interpolate."""
        known = self._times.get(key, {})
        if size in known or len(known) < 2:
            return known.get(size)
        sizes = sorted(known)
        i = min(max(int(np.searchsorted(sizes, size)), 1), len(sizes) - 1)
        low, high = sizes[i - 1], sizes[i]
        # the extrapolated line may become negative; times fall at most in proportion to the size
        part, least = (size - low) / (high - low), min(size / low, 1.0)
        alone, beside = (max(a + part * (b - a), least * a) for a, b in zip(known[low], known[high], strict=True))
        return alone, beside


def layer_key(layer: Layer) -> tuple[str, int]:
    """Return the key and the size (number of rows) under which the times of a layer are stored."""
    rows = max([feature.shape[0] for feature in layer.features or layer.sources], default=1)
    conf = layer.conf.model_dump(mode="json", exclude=NO_MATTER)
    for block in conf.values():
        for key in ("path", "batchsize") if isinstance(block, dict) else ():
            block.pop(key, None)
    facts: list[Any] = [conf, layer.learns, [(param.shape, str(param.dtype)) for param in layer.params]]
    facts.append([layer.fused.relu, layer.fused.relu_grad, layer.fused.idle])
    for each in (*layer.sources, *layer.features):
        facts.append([each.shape[0] / rows, each.shape[1:], str(each.dtype), each.requires_grad])
        facts.append([each.n_steps, sorted(each.consumed_as)])
    return f"{layer.conf.type} {hash_of(json.dumps(facts, sort_keys=True))}", rows


def hash_of(text: str) -> str:
    """Return a short hash of a text, for keys."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
