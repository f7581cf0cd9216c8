"""A parser of a user's own: how a batch of records becomes values and labels."""

from __future__ import annotations

from singa_dask import StoreInput


class Parity(StoreInput):
    """Digits at half their size, black or white; the label is 1 for odd ones."""

    def parse(self, arrays):
        """Return values and labels of records, whose fields are arrays of N rows as the store has them."""
        pixels = arrays["pixel"]
        n, height, width = pixels.shape
        threshold = self.conf.user_conf.get("threshold", 64)
        blocks = pixels.reshape(n, height // 2, 2, width // 2, 2)
        return blocks.mean(axis=(2, 4)) > threshold, arrays["label"] % 2
