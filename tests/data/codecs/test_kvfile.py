"""SINGA's key-value file: its own tests' cases, and the very bytes of files that SINGA wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from singa_dask.data.codecs.record import encode_record
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.stores.messages.kvfile import KVFile
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import RangeReader
from tests.contracts.records import pixels, read_all, write_pairs, written

SINGA = Path(__file__).parents[2] / "gold" / "data"
PAIRS = [("firstkey", b"firstval"), ("secondkey", b"second value"), ("3key", b"3value")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of three pairs."""
    path = tmp_path / "pairs.bin"
    write_pairs(str(path), PAIRS)
    return path


def pairs_of(path: Path) -> list[tuple[str, bytes]]:
    """Return the pairs of a file: a length and a key, a length and a value."""
    data, found = path.read_bytes(), list[bytes]()
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(data[8 : 8 + length])
        data = data[8 + length :]
    return [(key.decode(), value) for key, value in zip(found[::2], found[1::2], strict=True)]


def test_write_and_read_again(path: Path) -> None:
    assert pairs_of(path) == PAIRS


def test_what_a_writer_leaves_out(path: Path) -> None:
    write_pairs(str(path), [("empty", b""), ("twice", b"1"), ("twice", b"2")])
    assert pairs_of(path) == [("twice", b"1"), ("twice", b"2")]


def test_an_incomplete_pair_is_counted(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])
    pairs = KVFile(RangeReader(str(path)))
    assert pairs.truncated_bytes == 8 + 4 + 8 + 6 - 3
    data = pairs.reader.read(0, int(pairs.offsets[-1]))
    assert pairs.values(0, pairs.count, data) == [value for _, value in PAIRS[:2]]


@pytest.mark.parametrize(
    ("name", "keys", "count", "shape"),
    [
        ("small_mnist_test.bin", "%08d", 128, (28, 28)),
        ("small_img_train.bin", "%05d", 96, (3, 12, 12)),
        ("small_img_mean.bin", "mean", 1, (3, 12, 12)),
    ],
)
def test_files_of_singa_byte_for_byte(name: str, keys: str, count: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    with open_store(str(SINGA / name)) as store:
        records = read_all(store)
    values = records["data"] if "data" in records else records["pixel"]
    assert values.shape == (count, *shape)
    STORES.find("kvfile").write(str(tmp_path / name), records, keys=keys)
    assert (tmp_path / name).read_bytes() == (SINGA / name).read_bytes()


def test_the_mean_of_singa_is_the_mean_of_its_records() -> None:
    with (
        open_store(str(SINGA / "small_img_train.bin")) as images,
        open_store(str(SINGA / "small_img_mean.bin")) as mean,
    ):
        expected = read_all(images)["pixel"].mean(axis=0)
        np.testing.assert_allclose(read_all(mean)["data"][0], expected, rtol=1e-6)


def test_pixels_of_one_length_are_views(tmp_path: Path) -> None:
    with open_store(written(tmp_path, "kvfile", pixels(20))) as store:
        assert not store.read_block(0)["pixel"].flags.owndata
        assert not store.read_block(0)["pixel"].flags.writeable


def test_labels_of_any_length(tmp_path: Path) -> None:
    records = pixels(300)
    records["label"] = (np.arange(300, dtype=np.int32) - 3) * 997
    with open_store(written(tmp_path, "kvfile", records)) as store:
        found = read_all(store)
    np.testing.assert_array_equal(found["label"], records["label"])
    np.testing.assert_array_equal(found["pixel"], records["pixel"])


def test_a_directory_means_its_shard(tmp_path: Path) -> None:
    Path(written(tmp_path, "kvfile", pixels(5))).rename(tmp_path / "shard.dat")
    with open_store(str(tmp_path)) as store, open_store(str(tmp_path), "kvfile") as named:
        assert store.count == named.count == 5


def write_values(path: Path, values: list[bytes]) -> str:
    write_pairs(str(path), ((f"{i:04}", value) for i, value in enumerate(values)))
    return str(path)


def test_torn_and_other_bad_files(tmp_path: Path) -> None:
    good = encode_record((2, 2), 7, bytes(4))
    url = write_values(tmp_path / "cut.bin", [good] * 3)
    data = Path(url).read_bytes()
    Path(url).write_bytes(data[:-1])
    with pytest.raises(DataError, match=r"cut\.bin: truncated at byte \d+: record 2 is incomplete"):
        open_store(url)
    with pytest.raises(DataError, match=r"text\.bin, block 0 .*not a protobuf message"):
        open_store(write_values(tmp_path / "text.bin", [b"just text"]))
    cases = {
        "shape": encode_record((3, 2), 7, bytes(4)),
        "other": encode_record((4, 1), 7, bytes(4)),
        "unlabelled": encode_record((2, 2), None, bytes(4)),
        "nothing": encode_record((2, 2), 7),
        "garbage": b"\xff" * len(good),
    }
    for name, bad in cases.items():
        url = write_values(tmp_path / f"{name}.bin", [good, good, bad, good])
        with open_store(url) as store:
            with pytest.raises(DataError, match=rf"{name}\.bin, block 0 .*record 2: "):
                store.read_block(0)


def test_records_that_do_not_say_their_shape(tmp_path: Path) -> None:
    floats = np.array([3.2, 1, 14.1], np.float32)
    with open_store(write_values(tmp_path / "floats.bin", [encode_record((), 12, data=floats)] * 2)) as store:
        np.testing.assert_array_equal(read_all(store)["data"], [floats, floats])
    with open_store(write_values(tmp_path / "pixels.bin", [encode_record((), 7, bytes(range(4)))])) as store:
        assert read_all(store)["pixel"].tolist() == [[0, 1, 2, 3]]


def test_records_in_a_wrapper(tmp_path: Path) -> None:
    image = encode_record((2, 2), 7, bytes(range(4)))
    wrapped = b"\x08\x00" + b"\x2a" + bytes([len(image)]) + image
    with open_store(write_values(tmp_path / "old.bin", [wrapped] * 2)) as store:
        assert read_all(store)["pixel"].tolist() == [[[0, 1], [2, 3]]] * 2
        assert read_all(store)["label"].tolist() == [7, 7]
