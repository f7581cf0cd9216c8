"""Feedback: a mixin for layers that close a cycle of the net."""

from __future__ import annotations

from singa_dask.conf import LayerConf
from singa_dask.layers.feature import Feature


class Feedback:
    """Mixin for a layer that closes a cycle of the net.

    Feedback edges are ignored when the layers are ordered.
    """

    @classmethod
    def feedback_sources(cls, conf: LayerConf) -> list[str]:
        """Return the layers, besides ``srclayers``, whose outputs from an earlier pass this layer reads."""
        return []

    def bind_feedback(self, source: Feature) -> None:
        """Connect the source of a feedback edge. The net calls this method after all layers are wired.

        Raises
        ------
        ConfigError
            The source does not fit the layer. The path of the error is relative to the layer.
        """
        raise NotImplementedError
