"""Random tables and listings: the same values in the same order, or a refusal, whatever the format and the process."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.inference.memory_records import MemoryReading
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.jobs.datasets.frame_records import FrameWriter
from tests.contracts.records import read_all
from tests.data.stores.listed import digest, write_listed

COLUMNS = ["real", "whole", "colour", "when", "kind"]
FEATURES = COLUMNS[:-1]
NAMED: dict[str, Any] = {"features": FEATURES, "label": ["kind"], "categories": {"colour": []}}


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the records of a table as JSON has them, with all digits of numbers."""
    text = frame.astype({"when": str}) if frame["when"].dtype.kind == "M" else frame
    missing = frame.isna()
    return [
        {name: None if missing.loc[i, name] else row[name] for name in COLUMNS}
        for i, row in enumerate(text.to_dict("records"))
    ]


def write_lines(frame: pd.DataFrame, path: Path) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows(frame)))


def write_parts(frame: pd.DataFrame, path: Path) -> None:
    path.mkdir()
    for i, part in enumerate(np.array_split(np.arange(len(frame)), 2)):
        frame.iloc[part].to_csv(path / f"part-{i}.csv", index=False)


def write_partitions(frame: pd.DataFrame, path: Path) -> None:
    """Write what a job reads of the partitions of a frame of Dask."""
    path.mkdir()
    writer = FrameWriter("x", 2, tuple(COLUMNS))
    for i, part in enumerate(dd.from_pandas(frame, npartitions=2).partitions):
        writer(part.compute(), str(path / f"{i}.parquet"), i)


FILES: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "x.csv": lambda frame, path: frame.to_csv(path, index=False),
    "x.csv.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.to_csv(index=False).encode())) and None,
    "x.parquet": lambda frame, path: frame.to_parquet(path, index=False),
    "x.feather": lambda frame, path: frame.to_feather(path),
    "x.jsonl": write_lines,
    "x.json": lambda frame, path: path.write_text(json.dumps(rows(frame))) and None,
    "parts": write_parts,
    "partitions": write_partitions,
}


def read_file(path: Path, **options: Any) -> Arrays:
    with TableStore(str(path), **options) as store:
        return read_all(store)


def outcome(read: Callable[[], Arrays]) -> dict[str, bytes] | None:
    """Return the bits of records; None if they are refused."""
    try:
        return {name: array.astype(array.dtype.newbyteorder("<")).tobytes() for name, array in read().items()}
    except DataError:
        return None


# nothing that CSV takes for a blank, a number or a missing value: each form has rules of its own for those
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1, max_size=4).map(
    "n{}".format
)
REALS = st.floats(-(2.0**100), 2.0**100, allow_subnormal=False) | st.sampled_from([0.1, -0.0, 1 / 3, 16777217.0, 1e-30])
WHOLES = st.integers(-(2**62), 2**62) | st.sampled_from([16777217, 2**53 + 1, -(2**24) - 1])
WHAT = ["numbers", "numbers", "numbers", "gaps", "dates"]


@st.composite
def tables(draw: st.DrawFn) -> tuple[pd.DataFrame, str]:
    """Return a table without gaps or dates, and what makes another one of it."""
    n = draw(st.integers(2, 5))
    names = draw(st.lists(NAMES | st.sampled_from(['n,"o', "n;o", "n'o", "né", "ne\u0301"]), min_size=1, max_size=2))
    table = {
        "real": draw(st.lists(REALS, min_size=n, max_size=n)),
        "whole": draw(st.lists(WHOLES, min_size=n, max_size=n)),
        "colour": draw(st.lists(st.sampled_from(names), min_size=n, max_size=n)),
        "when": draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)),
        "kind": [f"class {i % 2}" for i in range(n)],
    }
    return pd.concat([pd.DataFrame(table)] * 3, ignore_index=True), draw(st.sampled_from(WHAT))


@pytest.mark.long
# 18 files an example: to shrink one takes minutes
@settings(
    max_examples=20, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(tables(), st.sampled_from(["error", 0.25]))
def test_a_table_has_the_same_bits_by_every_door(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[pd.DataFrame, str], missing: str | float
) -> None:
    (train, what), folder = drawn, tmp_path_factory.mktemp("doors")
    for name, write in FILES.items():
        write(train, folder / f"train-{name}")
    facts = []
    for name in FILES:
        with TableStore(str(folder / f"train-{name}"), **NAMED) as store:
            read_all(store)
            facts.append(store.table_facts)
    assert facts[1:] == facts[:-1], "each door learns the same names"
    frame = train.copy()
    if what == "gaps":
        frame.loc[1, "real"] = np.nan
    elif what == "dates":
        frame["when"] = pd.date_range("2024-01-31", periods=len(frame))
    given = {**NAMED, "missing": missing}
    found = {}
    for name, write in FILES.items():
        write(frame, folder / name)
        found[name] = outcome(lambda path=folder / name: read_file(path, **given, facts=facts[0].to_dict()))
    conf = StoreConf(path="x.csv", **given)
    for name, data in {"pandas": frame, "dask": dd.from_pandas(frame, npartitions=2)}.items():
        found[name] = outcome(
            lambda data=data: (r := MemoryReading(conf, facts[0], outputs=True).records(data)).read(0, r.n)
        )
    assert [name for name, bits in found.items() if bits != found["x.csv"]] == []
    if what == "dates" or (what == "gaps" and missing == "error"):
        assert found["x.csv"] is None
        return
    colours = pd.get_dummies(frame["colour"]).reindex(columns=sorted(set(frame["colour"])))
    parts = [frame["real"].fillna(0.25), frame["whole"], colours, frame["when"]]
    data = np.column_stack([part.to_numpy().astype("<f4") for part in parts])
    assert found["x.csv"] == {"data": data.tobytes(), "label": np.int32(frame["kind"].str[-1]).tobytes()}


# -- order -----------------------------------------------------------------------------------------------------


@contextmanager
def shuffled_listings(seed: int) -> Iterator[None]:
    """Have directories list their files in another order each time."""
    order, scandir, listdir = random.Random(seed), os.scandir, os.listdir

    @contextmanager
    def scan(path: Any = ".") -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as entries:
            found = list(entries)
        order.shuffle(found)
        yield iter(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", scan)
        patch.setattr(os, "listdir", lambda path=".": order.sample(found := listdir(path), len(found)))
        yield


@pytest.mark.long
def test_the_order_of_a_listing_is_that_of_no_record(tmp_path: Path) -> None:
    write_listed(tmp_path)
    wanted = digest(str(tmp_path))
    for seed in range(8):
        with shuffled_listings(seed):
            assert digest(str(tmp_path)) == wanted


@pytest.mark.long
def test_the_order_of_hashes_is_that_of_no_name(tmp_path: Path) -> None:
    write_listed(tmp_path)
    code = f"from tests.data.stores.listed import digest; print(digest({str(tmp_path)!r}))"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2", "3")
    ]
    said = {process.communicate()[0].decode().strip() for process in processes}
    assert said == {digest(str(tmp_path))}
