"""Views of stores, such as splits and shards, say everything about their records that the stores say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, get_origin, get_type_hints

import numpy as np
import pytest

from singa_dask.data.blocks import cut_blocks
from singa_dask.data.split import SplitConf
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.sharded_store import ShardedStore
from singa_dask.data.stores.split_store import SplitStore
from singa_dask.data.stores.store import Store
from singa_dask.data.stores.view_store import ViewStore
from singa_dask.data.types import Arrays, Field, TableColumn

# a part of mapped blocks is a copy; time series are tables, which choose their part themselves
NOT_OF_A_VIEW = {"mapped", "n_history", "n_later"}


class Told(RangeStore):
    """Records of one byte, with a value for everything that a store can say."""

    reads_labels_alone = decodes_ahead = is_converted = rounds_data = True
    class_names = ("cat", "dog")
    class_type = "integer"
    table_columns = (TableColumn("a", "number", "data"),)
    label_name = "kind"
    other_fields = ("other",)
    left_out = 3
    truncation = "truncated at byte 12"
    n_kept_runs = 16

    def index(self) -> None:
        self.open_source()
        self.blocks = cut_blocks(self.url, np.arange(13), 3)
        self.schema = {"data": Field(np.dtype(np.float32), (1,)), "label": Field(np.dtype(np.int32))}
        self.runs = np.array([0, 0, 2, 2])

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        values = np.frombuffer(data[0], np.uint8)
        return {"data": values[:, None].astype(self.schema["data"].dtype), "label": values.astype(np.int32) % 2}

    def warnings(self) -> tuple[str, ...]:
        return (*super().warnings(), "a gap")

    def limit_runs(self, n: int) -> None:
        self.n_kept_runs = n


def told(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).write_bytes(bytes(range(12)))
    return [str(folder / name) for name in names]


def split(folder: Path) -> SplitStore:
    [url] = told(folder, "a.told")
    return SplitStore(Told(url), SplitConf(part="test", test_from=4))


def shards(folder: Path) -> ShardedStore:
    return ShardedStore(str(folder), backend=f"{__name__}.Told", files=told(folder, "a.told", "b.told"))


@pytest.mark.parametrize(("view", "n", "runs"), [(split, 1, [0, 1, 1]), (shards, 2, [0, 0, 2, 2, 4, 4, 6, 6])])
def test_a_view_says_what_its_stores_say(
    view: Callable[[Path], ViewStore], n: int, runs: list[int], tmp_path: Path
) -> None:
    with view(tmp_path) as store:
        one = store.parts[0]
        said = {name for name, kind in get_type_hints(Store).items() if get_origin(kind) is not ClassVar}
        same = said - NOT_OF_A_VIEW - {"blocks", "left_out", "runs", "truncation"}
        assert {name: getattr(store, name) for name in same} == {name: getattr(one, name) for name in same}
        assert store.left_out == 3 * n and store.truncation.count("truncated at byte 12") == n
        assert store.runs is not None and store.runs.tolist() == runs
        assert store.warnings() == tuple(text for each in store.parts for text in each.warnings())
        assert sum("3 records are left out" in text for text in store.warnings()) == n
        store.limit_runs(2)
        assert [each.n_kept_runs for each in store.parts if isinstance(each, Told)] == [2] * n
        before = store.fingerprint
        store.widen()
        assert {each.schema["data"].dtype for each in (store, one)} == {np.dtype(np.float64)}
        assert store.read_block(0)["data"].dtype == np.float64 and store.fingerprint == before
