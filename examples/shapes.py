"""Make images of discs, squares and triangles on noise, with the class of each pixel.

    python examples/shapes.py data/shapes

writes into the directory ``data/shapes``, for ``configs/shapes/unet.yaml``:

- ``image-train.npy`` and ``image-test.npy``, images (N, 1, 32, 32) float32;
- ``class-train.npy`` and ``class-test.npy``, the class of each of their pixels, (N, 1024) uint8: 0 background, 1 disc,
  2 square, 3 triangle.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

SIDE, N_TRAIN, N_TEST = 32, 1500, 300


def inside(kind: int, x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """Return which pixels a shape around (0, 0) covers: 1 is a disc, 2 a square, 3 a triangle."""
    if kind == 1:
        return x**2 + y**2 <= radius**2
    if kind == 2:
        return np.maximum(abs(x), abs(y)) <= 0.85 * radius
    return (y <= 0.8 * radius) & (2 * abs(x) <= y + radius)


def make(n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return images with one to three shapes of a random brightness, and the classes of their pixels."""
    y, x = np.mgrid[:SIDE, :SIDE]
    images = random.normal(0, 0.3, (n, 1, SIDE, SIDE)).astype(np.float32)
    classes = np.zeros((n, SIDE, SIDE), np.uint8)
    for image, pixels in zip(images[:, 0], classes, strict=True):
        for kind in random.integers(1, 4, random.integers(1, 4)):
            column, row = random.uniform(4, SIDE - 4, 2)
            covered = inside(kind, x - column, y - row, random.uniform(4, 8))
            image[covered] += random.uniform(0.5, 1) - image[covered] / 2
            pixels[covered] = kind
    return images, classes.reshape(n, -1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/shapes.py FOLDER")
    made, random = Path(sys.argv[1]), np.random.default_rng(1)
    made.mkdir(parents=True, exist_ok=True)
    for name, n in (("train", N_TRAIN), ("test", N_TEST)):
        images, classes = make(n, random)
        np.save(made / f"image-{name}.npy", images)
        np.save(made / f"class-{name}.npy", classes)
