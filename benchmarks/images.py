"""What it costs to cut, mirror and normalise a batch of 256 images of 3 x 32 x 32 bytes to 3 x 28 x 28 floats.

The ways, in turn: our kernel on bytes; all pixels normalised and then cut by the same kernel, and by plain numpy;
and a loop over the records. ``python -m benchmarks.images [--rounds N]``
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from singa_dask.ops import get_ops

N, SIDE, CUT, SCALE = 256, 32, 28, 1 / 128


class Ways:
    """One batch, and where its images are cut; each method makes the same floats of it, in ``out``."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.ops = get_ops()
        self.pixels = random.integers(0, 256, (N, 3, SIDE, SIDE), np.uint8)
        self.mean = self.pixels.mean(axis=0, dtype=np.float32)
        self.top, self.left = random.integers(0, SIDE - CUT + 1, (2, N))
        self.mirrored = random.random(N) < 0.5
        self.floats = np.empty(self.pixels.shape, np.float32)
        self.out = np.empty((N, 3, CUT, CUT), np.float32)

    def from_bytes(self) -> None:
        places = (self.top, self.left, self.mirrored)
        self.ops.crop_mirror_normalize(self.pixels, *places, self.mean, None, SCALE, out=self.out)

    def normalise_then_cut(self) -> None:
        self.ops.normalize(self.pixels, self.mean, None, out=self.floats)
        places = (self.top, self.left, self.mirrored)
        self.ops.crop_mirror_normalize(self.floats, *places, None, None, SCALE, out=self.out)

    def plain_numpy(self) -> None:
        self.ops.normalize(self.pixels, self.mean, None, out=self.floats)
        windows = sliding_window_view(self.floats, (CUT, CUT), axis=(2, 3))
        np.multiply(windows[np.arange(N), :, self.top, self.left], SCALE, out=self.out)
        self.out[self.mirrored] = self.out[self.mirrored][..., ::-1]

    def record_by_record(self) -> None:
        for i, (top, left) in enumerate(zip(self.top, self.left, strict=True)):
            place = (slice(None), slice(top, top + CUT), slice(left, left + CUT))
            cut = (self.pixels[i][place] - self.mean[place]) * np.float32(SCALE)
            self.out[i] = cut[..., ::-1] if self.mirrored[i] else cut


def timed(way: Callable[[], None]) -> float:
    started = time.perf_counter()
    way()
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    made = Ways()
    ways = (made.from_bytes, made.normalise_then_cut, made.plain_numpy, made.record_by_record)
    results = []
    for way in ways:
        way()
        results.append(made.out.copy())
    assert all(np.array_equal(result, results[0]) for result in results)
    times = np.median([[timed(way) for way in ways] for _ in range(given.rounds)], axis=0)
    for way, seconds in zip(ways, times, strict=True):
        print(f"{way.__name__:20} {1e6 * seconds:6.0f} us a batch   {seconds / times[0]:.2f} x")


if __name__ == "__main__":
    main()
