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
    """Base of layers without sources, through which records enter the net."""

    traits = Traits(n_sources=(0, 0), role="input")

    @property
    def epoch(self) -> float | None:
        """Number of passes over the records so far; None without records, or before the first batch."""
        return None

    def steps_per_epoch(self, batch_size: int = 0) -> Fraction | None:
        """Return the number of batches in which the worker groups together read each record once; None without records.

        With several groups, it is the largest of their numbers. ``batch_size`` is by default the job's.

        Raises
        ------
        DataError
            The records cannot be counted.
        """
        return None

    def cursor(self) -> dict[str, Any] | None:
        """Return the position in the records as plain values; None without a position."""
        return None

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Go to the position that `cursor` returned."""

    def advance(self, n_batches: int) -> None:
        """Skip batches without reading them, or go back if the number is negative.

        A worker that joins a running job calls it. A layer with a position overrides `cursor`, `seek` and `advance`.
        """
        if self.cursor() is not None:
            logger.warning(
                "layer %s: %s defines cursor() but not advance(), so %d batches are %s.",
                self.conf_name, type(self).__name__, abs(n_batches), "read again" if n_batches > 0 else "left out"
            )  # fmt: skip
