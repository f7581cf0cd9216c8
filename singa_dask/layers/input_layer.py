"""InputLayer: what layers through which records enter the net have in common."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from singa_dask.layers.base import Layer
from singa_dask.layers.traits import Traits

logger = logging.getLogger(__name__)


class InputLayer(Layer):
    """A layer through which records enter the net."""

    traits = Traits(n_sources=(0, 0), is_input=True, needs_split=False)

    @property
    def epoch(self) -> float | None:
        """Passes over the records so far, as a fraction; None if the layer has none, or has not begun."""
        return None

    def steps_per_epoch(self, batch_size: int = 0) -> Fraction | None:
        """Return in how many batches the worker groups together read each record once; None if there are no records.

        Of several groups it is the number of the one with the most records. ``batch_size``: by default that of the job.

        Raises
        ------
        DataError
            The records cannot be counted.
        """
        return None

    def cursor(self) -> dict[str, Any] | None:
        """Return the position in the records as a few integers; None if there is none."""
        return None

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Go to the position that `cursor` returned."""

    def advance(self, n_batches: int) -> None:
        """Skip some batches without reading them, or go back by some if the number is negative.

        A worker calls it that joins a running job. A layer with a position overrides it, beside `cursor` and `seek`.
        """
        if self.cursor() is not None:
            logger.warning(
                "layer %s: %s defines cursor() but not advance(), so %d batches are %s.",
                self.conf_name, type(self).__name__, abs(n_batches), "read again" if n_batches > 0 else "left out"
            )  # fmt: skip
