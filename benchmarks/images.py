"""What it costs to cut, mirror and normalise a batch of 256 images of 3 x 32 x 32 bytes to 3 x 28 x 28 floats.

The ways, in turn: our kernel on bytes; all pixels normalised and then cut by the same kernel, and by plain numpy;
and a loop over the records. ``python -m benchmarks.images [--rounds N]``

With ``--jpeg N``: what it costs to read N JPEG files of 224 x 224 as pictures of 32 x 32: two epochs of batches of the
loader from a folder, and a pool of two threads that decodes the same files with Pillow by hand, in full and at half
their size.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import open_store
from singa_dask.ops import get_ops

N, SIDE, CUT, SCALE = 256, 32, 28, 1 / 128
JPEG_SIDE, N_THREADS = 224, 2


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


def write_jpegs(folder: Path, n: int) -> list[Path]:
    """Write JPEG files in folders of ten classes."""
    random, paths = np.random.default_rng(0), list[Path]()
    for i in range(n):
        paths.append(folder / f"c{i % 10}" / f"{i:06}.jpg")
        paths[-1].parent.mkdir(exist_ok=True)
        pixels = Image.fromarray(random.integers(0, 256, (28, 28, 3), np.uint8))
        pixels.resize((JPEG_SIDE, JPEG_SIDE), Image.Resampling.BICUBIC).save(paths[-1], quality=90)
    return sorted(paths)


def by_hand(paths: list[Path], draft: bool) -> np.ndarray:
    """Decode files by threads with Pillow, at half their size, as the store does, or in full: (n, 3, SIDE, SIDE)."""
    out = np.empty((len(paths), 3, SIDE, SIDE), np.uint8)

    def decode(i: int) -> None:
        with Image.open(paths[i]) as image:
            if draft:
                image.draft(None, (2 * SIDE, 2 * SIDE))
            small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            out[i] = np.asarray(small).transpose(2, 0, 1)

    with ThreadPoolExecutor(N_THREADS) as pool:
        list(pool.map(decode, range(len(paths))))
    return out


def measure_jpegs(n: int, rounds: int) -> None:
    """Print the pictures a second."""
    with tempfile.TemporaryDirectory() as folder:
        paths, rows = write_jpegs(Path(folder), n), []
        for _ in range(rounds):
            seconds = []
            for draft in (False, True):
                started = time.perf_counter()
                expected = by_hand(paths, draft)
                seconds.append(time.perf_counter() - started)
            with open_store(folder, "image-folder", resize=[SIDE, SIDE]) as store:
                order = Sampler([block.n for block in store.blocks], N, last_batch="drop_last")
                with Loader(store, order) as loader:
                    for _ in range(2):
                        started = time.perf_counter()
                        batches = [loader.next() for _ in range(n // N)]
                        seconds.append((time.perf_counter() - started) * n / (n // N * N))
                    assert (batches[-1].arrays["pixel"] == expected[batches[-1].ids]).all()
            rows.append(seconds)
    full, half, first, second = np.median(rows, axis=0)
    shares = [float(np.median([row[i] / row[2] for row in rows])) for i in (0, 1)]
    print(f"load {os.getloadavg()[0]:.1f}; pictures a second, median of {rounds}: {N_THREADS} threads by hand ", end="")
    print(f"{n / full:.0f}, at half the size {n / half:.0f}; first epoch {n / first:.0f} ", end="")
    print(f"({shares[0]:.2f} and {shares[1]:.2f} times as many), second {n / second:.0f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--jpeg", type=int, default=0, metavar="N", help="read so many JPEG files instead")
    given = parser.parse_args()
    if given.jpeg:
        measure_jpegs(given.jpeg, min(given.rounds, 5))
        return
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
