"""Data sets of the short form of all benchmarks, made with a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.contender import NETS, made_records

__all__ = ["NUMBERS", "make"]

NUMBERS = [f"x{i}" for i in range(16)]
ROWS, WIDE = 1_000_000, (300, 20_000)
RECORDS = (60_000, 28, 28)


def make(folder: Path, share: float) -> None:
    """Write tables, records and pictures; ``share`` is a factor of their numbers."""
    random, n = np.random.default_rng(0), max(200, round(ROWS * share))
    columns = {name: random.standard_normal(n).round(4) for name in NUMBERS}
    # two classes that no column tells alone
    classes = (columns["x0"] + columns["x1"] + random.standard_normal(n) > 0).astype(int)
    names = {name: random.choice(["north", "south", "east", "west"], n) for name in ("c0", "c1")}
    table = pa.table(columns | names | {"y": classes})
    for name, some in {"long": table, "short": table[:200]}.items():
        pyarrow.csv.write_csv(some, folder / f"{name}.csv")
        pq.write_table(some, folder / f"{name}.parquet")
    values = random.standard_normal((WIDE[0], max(10, round(WIDE[1] * share)))).round(4)
    wide = pa.table({f"x{i}": column for i, column in enumerate(values.T)} | {"y": np.arange(WIDE[0]) % 2})
    pyarrow.csv.write_csv(wide, folder / "wide.csv")
    for name in ("mlp", "lenet", "cifar"):
        images, labels = made_records(NETS[name])
        np.savez(folder / f"{name}.npz", images=images, labels=labels)
    n = max(1024, round(RECORDS[0] * share))
    pixels = random.integers(0, 256, (n, *RECORDS[1:]), np.uint8)
    np.savez(folder / "records.npz", images=pixels, labels=random.integers(0, 10, n).astype(np.int32))
