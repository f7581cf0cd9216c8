"""What documents take for granted: a reader's own pictures and downloads, a hand at the keyboard."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from singa_dask import fs
from singa_dask.data.stores import open_store
from tests.contracts.foreign import example, frame, png
from tests.snippets import ROOT

__all__ = [
    "digits",
    "interrupted",
    "write_churn",
    "write_cifar",
    "write_flowers",
    "write_photos",
    "write_tfrecords",
]

INTERRUPT = Path(__file__).with_name("interrupt.py")


def interrupted(run_dir: str, command: str) -> str:
    """Return the shell command that runs another, and presses Ctrl-C when it has trained for a while."""
    return f"{sys.executable} {INTERRUPT} {run_dir} {command}"


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return real digits, (n, 28, 28) bytes, and their labels."""
    with open_store(str(ROOT / "data/digits/test.arrow")) as store:
        records = store.read_block(0)
    return records["pixel"][:n].reshape(n, 28, 28), records["label"][:n]


def write_photos(folder: Path, n: int = 5) -> None:
    """Write digits as pictures in a folder for each class."""
    for i, (pixel, label) in enumerate(zip(*digits(n), strict=True)):
        path = folder / f"digit-{label}/{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(np.stack([pixel] * 3)))


def write_flowers(folder: Path, n: int = 20) -> None:
    """Write coloured pictures of two classes, larger than what nets take."""
    random = np.random.default_rng(1)
    for name in ("daisy", "tulip"):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            (folder / name / f"{i}.png").write_bytes(png(random.integers(0, 256, (3, 70, 80), dtype=np.uint8)))


def write_churn(url: str) -> None:
    """Write a table of customers as Spark writes it, into ``url``/churn, and one of new customers beside it."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"tenure": random.integers(0, 72, 2000), "plan": random.choice(["basic", "pro"], 2000)})
    frame["churn"] = np.where((frame["tenure"] < 20) & (frame["plan"] == "basic"), "yes", "no")
    for i in range(2):
        fs.write_atomic(f"{url}/churn/part-{i:05d}.parquet", frame.iloc[i::2].to_parquet(index=False))
    fs.write_atomic(f"{url}/new.csv", b"customer_id,tenure,plan\n7,5,basic\n8,60,basic\n9,5,pro\n")


def write_cifar(path: Path, n: int) -> None:
    """Write random records in CIFAR-10's binary form: a byte of class, then red, green and blue."""
    random = np.random.default_rng(n)
    records = random.integers(0, 256, (n, 1 + 3 * 32 * 32), dtype=np.uint8)
    records[:, 0] = np.arange(n) % 10
    path.write_bytes(records.tobytes())


def write_tfrecords(folder: Path, n_files: int = 2, n: int = 50) -> None:
    """Write digits as files of tf.train.Example."""
    pixels, labels = digits(n_files * n)
    for i in range(n_files):
        rows = zip(pixels[i * n : i * n + n], labels[i * n : i * n + n], strict=True)
        records = (frame(example({"image_raw": x.tobytes(), "label": int(y)})) for x, y in rows)
        (folder / f"part-{i}.tfrecord").write_bytes(b"".join(records))
