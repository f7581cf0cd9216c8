"""Feedback: a mixin for layers that close a cycle of the net."""

from __future__ import annotations

from singa_dask.conf import LayerConf
from singa_dask.layers.feature import Feature


class Feedback:
    """Mixin for a layer that closes a cycle of the net. Its feedback edges do not order the layers."""

    @classmethod
    def feedback_sources(cls, conf: LayerConf) -> list[str]:
        """Return the names of further layers, beside ``srclayers``, whose outputs of an earlier pass it reads."""
        return []

    def bind_feedback(self, source: Feature) -> None:
        """Connect the feature of a feedback edge, once all layers are wired.

        Raises
        ------
        ConfigError
            It does not fit, with a path relative to the layer.
        """
        raise NotImplementedError
