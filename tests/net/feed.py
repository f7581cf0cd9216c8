"""Feed: an input layer for tests; its records are a function of its seed, the step and the row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_dask.conf import Phase
from singa_dask.inputs import InputLayer
from singa_dask.layers import RecordIds

__all__ = ["Feed"]


class Feed(InputLayer):
    """Normal data of ``user_conf.shape`` (of the group's batch) and labels below ``user_conf.classes``."""

    def setup(self) -> None:
        n_rows, *rest = self.conf.user_conf["shape"]
        self.n_rows = n_rows
        self.position = 0
        self.closed = False
        self.add_output((n_rows // self.site.batch_shard.count, *rest), requires_grad=False)

    def compute_feature(self, phase: Phase) -> None:
        random = np.random.default_rng((self.context.seed, self.position))
        self.position += 1
        mine = slice(self.first_row(self.features[0].shape[0]), None)
        rows = slice(mine.start, mine.start + self.features[0].shape[0])
        shape = (self.n_rows, *self.features[0].shape[1:])
        self.ops.copy(random.normal(size=shape)[rows], out=self.features[0].data)
        labels = random.integers(0, self.conf.user_conf.get("classes", 2), self.n_rows)[rows]
        self.features[0].records = RecordIds(self.ops.labels(labels, self.features[0].records.labels))

    def cursor(self) -> dict[str, Any]:
        return {"position": self.position}

    def seek(self, cursor: Mapping[str, Any]) -> None:
        self.position = cursor["position"]

    def close(self) -> None:
        self.closed = True
