"""Wrong records of tables are skipped one by one: the others keep their ids, and orders stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask.data.loading import BadPolicy, Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.errors import DataError
from tests.converting import convert

N, BATCH = 40, 4
COLUMNS: dict[str, Any] = {
    "features": ["size", "place"],
    "categories": {"place": ["n", "s"]},
    "label": ["kind", "grade"],
}
# record -> its line, and what is said of it
WRONG = {
    3: ("n,big,A", "table.csv, line 5: 3 fields, expected 4"),
    17: ("1x,n,big,A", "line 19, column 'size': '1x' is not a number"),
    18: ("7,w,big,A", "line 20, column 'place': unknown category 'w'"),
    25: ("7,n,,A", "line 27, column 'kind': no value"),
    30: ('7,"n"s,big,A', "line 32"),
}


def lines(wrong: dict[int, tuple[str, str]]) -> list[str]:
    """Return the records of a table: the size of each is its number."""
    good = [f"{i},{'ns'[i % 2]},{'big' if i % 3 else 'small'},{'AB'[i % 2]}" for i in range(N)]
    return [wrong[i][0] if i in wrong else line for i, line in enumerate(good)]


def csv_of(folder: Path, wrong: dict[int, tuple[str, str]], **options: Any) -> TableStore:
    path = folder / "table.csv"
    path.write_text("\n".join(["size,place,kind,grade", *lines(wrong)]) + "\n")
    return TableStore(str(path), block_bytes=120, **{**COLUMNS, **options})


def loader_of(store: TableStore, shuffle: Any = "none", **policy: Any) -> Loader:
    sampler = Sampler([block.n for block in store.blocks], BATCH, shuffle, 1, fingerprint=store.fingerprint)
    return Loader(store, sampler, prefetch=False, policy=BadPolicy("skip", **{"max_bad": 10, **policy}))


def read(loader: Loader, n_steps: int) -> tuple[list[int], list[float]]:
    """Return ids and sizes of the records of some batches."""
    batches = [loader.next() for _ in range(n_steps)]
    sizes = [size for batch in batches for size in batch.arrays["data"][:, 0].tolist()]
    return [each for batch in batches for each in batch.ids.tolist()], sizes


def stands_in(record: int) -> int:
    """Return the next record that is not wrong."""
    return next(each for each in range(record, N) if each not in WRONG)


@pytest.mark.parametrize("shuffle", ["none", "full"])
def test_single_records_of_csv_are_skipped(shuffle: str, tmp_path: Path) -> None:
    with csv_of(tmp_path, {}) as store, loader_of(store, shuffle) as loader:
        expected, _ = read(loader, N // BATCH)
        schema = store.schema
    with csv_of(tmp_path, WRONG, tolerant=True) as store, loader_of(store, shuffle) as loader:
        assert (len(store.blocks) > 3, store.count, store.schema) == (True, N, schema)
        assert dict(store.table_facts.labels) == {"kind": ("big", "small"), "grade": ("A", "B")}
        ids, sizes = read(loader, N // BATCH)
        assert ids == [stands_in(each) for each in expected]
        assert sizes == ids
        told = {each.record: each.reason for each in loader.bad.take()}
        assert told.keys() == WRONG.keys()
        for record, reason in told.items():
            assert WRONG[record][1] in reason
        # resumed in the middle
        loader.seek({**loader.cursor(), **Loader.cursor(loader)})
        cursor = Sampler([block.n for block in store.blocks], BATCH, shuffle, 1, fingerprint=store.fingerprint).cursor(
            4
        )
    with csv_of(tmp_path, WRONG, tolerant=True) as store, loader_of(store, shuffle) as again:
        again.seek(cursor)
        assert read(again, N // BATCH - 4) == (ids[4 * BATCH :], sizes[4 * BATCH :])


def test_records_without_values_are_no_wrong_records(tmp_path: Path) -> None:
    wrong = {2: (",n,big,A", ""), 3: WRONG[3], 17: WRONG[17], 20: ("5,,big,A", "")}
    with csv_of(tmp_path, wrong, tolerant=True, missing="skip") as store, loader_of(store) as loader:
        assert store.count == N - 2
        _, sizes = read(loader, 9)
        assert sizes[:4] == [0, 1, 4, 4]
        assert sorted(each.record for each in loader.bad.take()) == [2, 16]


def test_single_records_of_parquet_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    sizes = [float(i) if i not in (5, 9) else None for i in range(20)]
    labels = [i % 2 if i != 11 else 1 << 40 for i in range(20)]
    pq.write_table(pa.table({"size": sizes, "kind": labels}), path, row_group_size=8)
    with TableStore(str(path), features=["size"], label="kind", tolerant=True) as store, loader_of(store) as loader:
        ids, found = read(loader, 5)
        assert ids == found == [0, 1, 2, 3, 4, 6, 6, 7, 8, 10, 10, 12, *range(12, 20)]
        reasons = [each.reason for each in loader.bad.take()]
    assert [reason.partition("table.parquet, ")[2] for reason in reasons] == [
        "row group 0, record 5, column 'size': no value. Set missing: to mean, to skip, or to a number for features "
        "without a value",
        "row group 1, record 9, column 'size': no value. Set missing: to mean, to skip, or to a number for features "
        "without a value",
        "row group 1, record 11, column 'kind': the label 1099511627776 does not fit in 32 bits",
    ]


def test_a_damaged_row_group_is_skipped_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    table = pa.table({"size": np.arange(20.0), "kind": np.arange(20)})
    pq.write_table(table, path, row_group_size=8, compression="none", use_dictionary=False, write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 3] ^= 255
    path.write_bytes(data)
    with TableStore(str(path), features=["size"], label="kind", tolerant=True) as store, loader_of(store) as loader:
        ids, _ = read(loader, 5)
        assert ids == [*range(8), *[16] * 8, *range(16, 20)]
        assert [(each.block, each.row, each.rows) for each in loader.bad.take()] == [(1, None, 8)]


def test_too_many_wrong_records_are_an_error(tmp_path: Path) -> None:
    with csv_of(tmp_path, WRONG, tolerant=True) as store, loader_of(store, max_bad=2) as loader:
        with pytest.raises(DataError, match=r"3 bad records, more than the 2 that max_bad allows. .*column 'place'"):
            read(loader, N // BATCH)
    with pytest.raises(DataError, match=r"table.csv, line 5: 3 fields, expected 4, as in the header"):
        csv_of(tmp_path, WRONG)


@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_the_first_worker_and_a_conversion_say_how_many_records_are_left_out(
    missing: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x.csv").write_text("x,y\n1,0\n,1\n3,0\nNA,1\n")
    with TableStore(str(tmp_path / "x.csv"), label="y", missing=missing) as store:
        for worker in range(2):
            Loader(store, Sampler([block.n for block in store.blocks], 2), worker, 2, prefetch=False).close()
    told = list[str]()
    options = {"label": "y", "features": "x", "missing": missing}
    convert("table", [str(tmp_path / "x.csv")], str(tmp_path / "x.arrow"), reading=options, log=told.append)
    said = f"{tmp_path}/x.csv: 2 records are left out for missing values; 2 are read."
    assert caplog.messages == told == ([said] if missing == "skip" else [])
