"""Input layers: the cases of SINGA's own tests, sharing over workers and groups, normalising, cursors, checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.data.codecs.record import encode_record
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import STORES
from singa_dask.errors import Aborted, ConfigError, DataError
from singa_dask.inputs import InputContext, InputLayer
from singa_dask.inputs.store_input import StoreInput
from singa_dask.layers import LAYERS
from singa_dask.net import memory, wiring
from singa_dask.ops import get_ops
from tests.contracts.records import pixels, write_pairs

SINGA = Path(__file__).parents[1] / "gold" / "data"
LINES = "12,3.2,1,14.1\n2,0.2,0,1.1\n1,2.2,1,4.1\n"


def layer_of(kind: str, context: InputContext | None = None, **store_conf: Any) -> StoreInput:
    """Wire a layer that is ready to run."""
    conf = LayerConf.model_validate({"name": "data", "type": kind, "store_conf": store_conf})
    layer = LAYERS.find(kind)(conf, context or InputContext())
    assert isinstance(layer, StoreInput)
    wiring.wire(layer, [], get_ops("cpu"))
    memory.allocate(layer)
    return layer


def read(layer: StoreInput) -> np.ndarray:
    layer.forward(Phase.TRAIN | Phase.FORWARD)
    return np.array(layer.features[0].data)


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines.csv"
    path.write_text(LINES)
    return str(path)


@pytest.fixture
def records(tmp_path: Path) -> str:
    url = str(tmp_path / "records.bin")
    rows = [[float(part) for part in line.split(",")] for line in LINES.split()]
    values = (encode_record((3,), int(row[0]), data=np.array(row[1:], np.float32)) for row in rows)
    write_pairs(url, ((str(i), value) for i, value in enumerate(values)))
    return url


@pytest.mark.parametrize("kind", ["CSVInput", "RecordInput"])
def test_what_singa_tests(kind: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("lines" if kind == "CSVInput" else "records")
    layer = layer_of(kind, path=url, batchsize=2, shape=3)
    assert layer.features[0].shape == (2, 3)
    assert layer.features[0].grad is None
    np.testing.assert_allclose(read(layer), [[3.2, 1, 14.1], [0.2, 0, 1.1]], rtol=1e-6)
    assert layer.features[0].records.labels.tolist() == [12, 2]
    np.testing.assert_allclose(read(layer), [[2.2, 1, 4.1], [3.2, 1, 14.1]], rtol=1e-6)
    assert layer.features[0].records.labels.tolist() == [1, 12]
    layer.close()


def test_lines_without_labels(lines: str) -> None:
    layer = layer_of("CSVInput", path=lines, batchsize=2, shape=4, has_label=False, backend="textfile")
    np.testing.assert_allclose(read(layer), [[12, 3.2, 1, 14.1], [2, 0.2, 0, 1.1]], rtol=1e-6)
    assert layer.features[0].records.labels is None
    layer.close()


def written(folder: Path, n: int = 600, **more: Any) -> tuple[str, dict[str, np.ndarray]]:
    made = pixels(n, (3, 4))
    url = str(folder / "r.arrow")
    STORES.find("arrow").write(url, made, **more)
    return url, made


@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
def test_workers_of_a_group_share_a_batch(shuffle: str, tmp_path: Path) -> None:
    url, _ = written(tmp_path, block_bytes=500)
    conf = {"path": url, "batchsize": 12, "shape": [3, 4], "shuffle": shuffle, "random_skip": 50}
    whole = layer_of("RecordInput", **conf)
    shares = [layer_of("RecordInput", InputContext(worker=i, n_workers=3), **conf) for i in range(3)]
    assert shares[0].features[0].shape == (4, 3, 4)
    for _ in range(60):
        np.testing.assert_array_equal(np.concatenate([read(share) for share in shares]), read(whole))
        labels = np.concatenate([share.features[0].records.labels for share in shares])
        np.testing.assert_array_equal(labels, whole.features[0].records.labels)
    for layer in (whole, *shares):
        layer.close()


def test_groups_read_different_records(tmp_path: Path) -> None:
    url, made = written(tmp_path)
    rows = []
    for group in range(2):
        layer = layer_of("RecordInput", InputContext(group=group, n_groups=2), path=url, batchsize=100, shape=[3, 4])
        rows += [read(layer) for _ in range(3)]
        layer.close()
    np.testing.assert_array_equal(np.concatenate(rows), made["pixel"])


def test_the_last_batch_and_the_deal_of_blocks_are_as_the_job_says(tmp_path: Path) -> None:
    url, _ = written(tmp_path)
    conf: dict[str, Any] = {"path": url, "shape": [3, 4], "shuffle": "block", "last_batch": "drop_last"}
    layer = layer_of("RecordInput", InputContext(assignments={"data": [0], "other": [1]}), batchsize=250, **conf)
    read(layer)
    cursor = layer.cursor() or {}
    assert cursor["last_batch"] == "drop_last"
    assert cursor["deal"] == Sampler([1], 1, "block", assignment=[0]).cursor(0)["deal"]
    layer.close()
    with pytest.raises(DataError, match="less than a batch of 601"):
        read(layer_of("RecordInput", batchsize=601, **conf))


def test_one_batch_size_for_each_worker(tmp_path: Path) -> None:
    url, _ = written(tmp_path)
    context = InputContext(n_workers=2)
    assert layer_of("RecordInput", context, path=url, batchsize=[5, 5], shape=[12]).features[0].shape == (5, 12)
    uneven = r"for each of the 2 workers of a group, in the proportions 1 : 1, got \[5, 6\]"
    for sizes, message in (([5], "multiple of the 2 workers of a group, got 5. Set 6."), ([5, 6], uneven)):
        with pytest.raises(ConfigError, match=f"store_conf.batchsize: .*{message}"):
            layer_of("RecordInput", context, path=url, batchsize=sizes, shape=[12])


def test_mean_and_std_by_value_and_by_file(tmp_path: Path) -> None:
    conf = {"path": str(SINGA / "small_img_train.bin"), "backend": "kvfile", "batchsize": 96, "shape": [3, 12, 12]}
    means, deviations = [100.0, 120.0, 90.0], [4.0, 5.0, 0.5]
    plain, by_channel, by_value, by_file = (
        layer_of("RecordInput", **conf, **more)
        for more in (
            {},
            {"mean_value": means, "std_value": deviations},
            {"mean_value": 100, "std_value": 4},
            {"mean_file": str(SINGA / "small_img_mean.bin"), "std_value": 2},
        )
    )
    x = read(plain)
    np.testing.assert_allclose(read(by_value), (x - 100) / 4)
    wanted = np.stack([(x[:, k] - means[k]) / deviations[k] for k in range(3)], axis=1)
    np.testing.assert_allclose(read(by_channel), wanted, rtol=1e-6)
    np.testing.assert_allclose(read(by_file), (x - x.mean(axis=0)) / 2, atol=1e-4)
    std = {"data": np.full((1, 3, 12, 12), 8, np.float32)}
    STORES.find("arrow").write(str(tmp_path / "std.arrow"), std)
    by_std = layer_of("RecordInput", **conf, std_file=str(tmp_path / "std.arrow"))
    np.testing.assert_allclose(read(by_std), x / 8)
    for layer in (plain, by_channel, by_value, by_file, by_std):
        layer.close()
    with pytest.raises(ConfigError, match=r"store_conf.mean_value: expected one number, or a list of 3, .* got 2\."):
        layer_of("RecordInput", **conf, mean_value=[1.0, 2.0])
    with pytest.raises(ConfigError, match="std_value: expected a number other than 0"):
        layer_of("RecordInput", **conf, std_value=[1.0, 2.0, 0])


def test_mean_and_std_of_text_have_no_label(tmp_path: Path) -> None:
    for name, text in {"x": "1;2,4\n0;6,8\n", "mean": "1;2\n", "std": "0.5,4\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    keys = {"path": "x", "mean_file": "mean", "std_file": "std"}
    paths = {key: str(tmp_path / f"{name}.csv") for key, name in keys.items()}
    layer = layer_of("CSVInput", **paths, batchsize=2, shape=[2], separator=",;")
    np.testing.assert_array_equal(read(layer), [[2, 0.5], [10, 1.5]])
    layer.close()


def test_a_cursor_resumes_exactly_and_is_kept_when_closed(tmp_path: Path) -> None:
    url, _ = written(tmp_path)
    conf = {"path": url, "batchsize": 50, "shape": [3, 4], "shuffle": "block"}
    layer = layer_of("RecordInput", **conf)
    assert layer.cursor() is None
    for _ in range(17):
        read(layer)
    cursor = layer.cursor()
    assert cursor is not None
    expected = [read(layer) for _ in range(5)]
    layer.seek(cursor)
    np.testing.assert_array_equal([read(layer) for _ in range(5)], expected)
    layer.seek(cursor)
    layer.close()
    assert layer.cursor() == cursor
    other = layer_of("RecordInput", **conf)
    other.seek(cursor)
    assert other.cursor() == cursor
    np.testing.assert_array_equal([read(other) for _ in range(5)], expected)
    assert other.bytes_read > 0
    assert other.wait_s > 0
    other.close()


def test_a_layer_that_fails_to_open_closes_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    kind = STORES.find("arrow")
    monkeypatch.setattr(kind, "close", lambda store, close=kind.close: (closed.append(store.url), close(store)))
    large, url = str(tmp_path / "large.arrow"), written(tmp_path)[0]
    STORES.find("arrow").write(large, pixels(2, (1, 2**20)))
    for path, shape, cursor, found in (
        (large, [1, 2**20], None, "memory_mb"),
        (url, [3, 4], {"samples_seen": 0, "batch_size": 2}, "checkpoint"),
    ):
        closed.clear()
        layer = layer_of("RecordInput", path=path, batchsize=2, shape=shape, memory_mb=1)
        if cursor:
            layer.seek(cursor)
        with pytest.raises(DataError, match=found):
            read(layer)
        assert layer.store is None
        assert closed == [path]


def test_a_closed_layer_is_not_called_by_its_cancellation(lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    aborted: list[StoreInput] = []
    monkeypatch.setattr(StoreInput, "_abort", lambda layer: aborted.append(layer))
    context = InputContext()
    closed, opened, fresh = (layer_of("CSVInput", context, path=lines, batchsize=2, shape=3) for _ in range(3))
    for layer in (closed, opened):
        read(layer)
    closed.close()
    context.cancellation.cancel("the end")
    assert aborted == [opened]
    opened.close()
    with pytest.raises(Aborted, match="the end"):
        read(fresh)
    assert fresh.store is None


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("n", [0, 3, 30])
def test_to_advance_is_to_read(tmp_path: Path, n: int, opened: bool) -> None:
    url, _ = written(tmp_path)
    conf = {"path": url, "batchsize": 50, "shape": [3, 4], "shuffle": "block", "random_skip": 100}
    layer, other, fresh = (layer_of("RecordInput", **conf) for _ in range(3))
    for _ in range(5):
        read(layer)
    cursor = layer.cursor() or {}
    for _ in range(n):
        read(layer)
    if opened:
        read(other)
    other.seek(cursor)
    other.advance(n)
    fresh.advance(n + 5)
    assert other.cursor() == layer.cursor()
    other.close()
    assert other.cursor() == layer.cursor()
    expected = read(layer)
    for each in (other, fresh):
        np.testing.assert_array_equal(read(each), expected)
        assert each.cursor() == layer.cursor()
    for each in (layer, other, fresh):
        each.close()


def test_a_layer_that_cannot_skip_batches_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Counts(InputLayer):
        def cursor(self) -> dict[str, Any]:
            return {"n": 1}

    for kind in (InputLayer, Counts):
        layer = kind(LayerConf.model_validate({"name": "data", "type": "RecordInput"}), InputContext())
        layer.advance(3)
    (record,) = caplog.records
    assert record.getMessage() == "layer data: Counts defines cursor() but not advance(), so 3 batches are read again."


def test_a_cursor_of_other_records_is_refused(tmp_path: Path) -> None:
    url, _ = written(tmp_path)
    layer = layer_of("RecordInput", path=url, batchsize=50, shape=[3, 4])
    read(layer)
    cursor = layer.cursor()
    layer.close()
    written(tmp_path, 601)
    other = layer_of("RecordInput", path=url, batchsize=50, shape=[3, 4])
    other.seek(cursor or {})
    with pytest.raises(DataError, match="the version of the data is"):
        read(other)
    other.close()


def test_records_are_read_before_the_first_batch_if_that_is_asked_for(tmp_path: Path) -> None:
    url, made = written(tmp_path)
    layer = layer_of("RecordInput", path=url, batchsize=20, shape=[3, 4])
    layer.wait_for_batch()
    assert layer.bytes_read == 0
    layer.read_ahead()
    layer.wait_for_batch()
    assert layer.bytes_read > 0
    assert layer.wait_s == 0
    np.testing.assert_array_equal(read(layer), made["pixel"][:20])
    layer.close()


def test_nothing_is_opened_before_the_first_batch() -> None:
    layer = layer_of("RecordInput", path="/nowhere/at/all", batchsize=4, shape=[2, 2])
    assert layer.features[0].shape == (4, 2, 2)
    layer.close()
    with pytest.raises(DataError, match="/nowhere/at/all"):
        read(layer)


def test_what_the_job_must_say() -> None:
    with pytest.raises(ConfigError) as caught:
        layer_of("RecordInput", batchsize=4)
    assert [problem.path[-1] for problem in caught.value.problems] == ["path", "shape"]


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({}, None, ""),
        ({"path": "nowhere.bin"}, "path", "no such file"),
        ({"shape": [3, 5]}, "path", r"records of \(3, 4\), expected \(3, 5\)"),
        ({"path": str(SINGA / "small_img_mean.bin"), "shape": [3, 12, 12]}, "path", "the records have no labels"),
        ({"backend": "lmdb"}, "path", "not an LMDB file"),
        ({"mean_file": "nowhere.bin"}, "mean_file", "no such file"),
        ({"std_file": str(SINGA / "small_img_mean.bin")}, "std_file", r"a record of \(3, 12, 12\), expected \(3, 4\)"),
    ],
)
def test_sources_are_checked_on_the_client(
    changes: dict[str, Any], key: str | None, message: str, tmp_path: Path
) -> None:
    url, _ = written(tmp_path)
    layer = layer_of("RecordInput", **{"path": url, "batchsize": 4, "shape": [3, 4], **changes})
    if key is None:
        layer.check_source()
        return
    with pytest.raises(ConfigError, match=message) as caught:
        layer.check_source()
    assert [problem.path for problem in caught.value.problems] == [("store_conf", key)]
