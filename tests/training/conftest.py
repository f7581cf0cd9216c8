"""The input layer that the nets of these tests read."""

from tests.net.conftest import feed_layer

__all__ = ["feed_layer"]
