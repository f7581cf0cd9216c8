"""InputLayer: base of the layers through which records and texts enter the net."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from singa_dask.layers.base import Layer
from singa_dask.layers.traits import Traits

logger = logging.getLogger(__name__)


class InputLayer(Layer):
    """Base of the layers that supply records to a net. They have no source layers."""

    traits = Traits(n_sources=(0, 0), role="input")

    @property
    def epoch(self) -> float | None:
        """Number of passes over the records so far; None before the first batch or without records."""
        return None

    def steps_per_epoch(self, batch_size: int = 0) -> Fraction | None:
        """Return the number of batches in which all worker groups together read each record once.

        If the groups need different numbers of batches, the result is the largest number. If the layer reads no
        records, the result is None. By default, ``batch_size`` is the job's batch size.

        Raises
        ------
        DataError
            The records cannot be counted.
        """
        return None

    def cursor(self) -> dict[str, Any] | None:
        """Return the position in the records as plain values; None if the layer has no position."""
        return None

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Continue at a position that `cursor` has returned."""

    def advance(self, n_batches: int) -> None:
        """Skip batches without reading them. A negative ``n_batches`` goes back.

        A worker that joins a running job calls this method. Layers with a position override `cursor`, `seek` and
        `advance`.
        """
        if self.cursor() is not None:
            logger.warning(
                "layer %s: %s defines cursor() but not advance(), so %d batches are %s.",
                self.conf_name, type(self).__name__, abs(n_batches), "read again" if n_batches > 0 else "left out"
            )  # fmt: skip
