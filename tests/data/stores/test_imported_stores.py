"""Formats of others, one by one: what may vary in them, and what damaged files are said to be."""

from __future__ import annotations

import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask.data.stores import open_store
from singa_dask.data.stores.images import image_decoding
from singa_dask.errors import DataError
from singa_dask.fs import checksums
from singa_dask.lazy import LazyModule
from tests.contracts.foreign import checksum as tail
from tests.contracts.foreign import example, frame, idx, png, tar, write_foreign
from tests.contracts.records import assert_same, pixels, read_all, written

PIXELS = pixels(4, (3, 5, 6))["pixel"]
VALUES = ".png, .jpg, .jpeg, .webp, .bmp, .gif, .tif, .tiff, .npy"

NO_ARRAY = "/x.npz: there is no array called images or image or pixel or data or features or x."


def opened(path: Path, data: bytes, backend: str | None = None, **options: object) -> dict[str, np.ndarray]:
    path.write_bytes(data)
    with open_store(str(path), backend, **options) as store:
        return read_all(store)


def refused(path: Path, data: bytes, message: str, backend: str | None = None, **options: object) -> None:
    with pytest.raises(DataError) as caught:
        opened(path, data, backend, **options)
    assert str(caught.value).replace(str(path.parent), "") == message


# -- checksums -------------------------------------------------------------------------------------


def test_crc32c() -> None:
    # the check value of the catalogue of CRCs
    assert checksums.checksum_of(memoryview(b"123456789")) == 0xE3069283
    assert checksums.checksum_of(b"6789", checksums.checksum_of(b"12345")) == 0xE3069283
    assert checksums.checksum_of(b"") == 0


# -- idx, cifar, npz -------------------------------------------------------------------------------


def test_labels_of_an_idx_file_may_lie_anywhere(tmp_path: Path) -> None:
    (tmp_path / "y").write_bytes(idx(np.arange(4)))
    found = opened(tmp_path / "x", idx(PIXELS), labels=str(tmp_path / "y"))
    assert found["label"].tolist() == [0, 1, 2, 3]
    assert list(opened(tmp_path / "x", idx(PIXELS))) == ["pixel"]


def test_damaged_idx(tmp_path: Path) -> None:
    path = tmp_path / "x-images.idx"
    refused(
        path,
        b"PNG?",
        "/x-images.idx: not an idx file of bytes: it begins with 50 4e 47 3f, expected 00 00 08 and the dimensions.",
    )
    refused(
        path,
        idx(PIXELS)[:-1],
        "/x-images.idx: the file has 359 bytes after the header, which do not fit the shape (4, 3, 5, 6).",
    )
    refused(
        path, idx(np.zeros(3)), "/x-images.idx: the file has no images. Expected an idx header of 3 or more dimensions."
    )
    refused(path, struct.pack(">II", 0x0802, 0) + bytes(4), "/x-images.idx: no records.")
    (tmp_path / "x-labels.idx").write_bytes(idx(np.arange(3)))
    message = f"/x-images.idx: the file has 4 images, but {tmp_path}/x-labels.idx has labels of shape (3,)."
    refused(path, idx(PIXELS), message.replace(str(tmp_path), ""))


def test_cifar_100(tmp_path: Path) -> None:
    rows = np.arange(2 * 14, dtype=np.uint8).reshape(2, 14)
    found = opened(tmp_path / "train.bin", rows.tobytes(), "cifar", label_bytes=2, shape=(3, 2, 2))
    assert found["label"].tolist() == [1, 15]
    np.testing.assert_array_equal(found["pixel"].reshape(2, 12), rows[:, 2:])
    refused(
        tmp_path / "t.bin",
        bytes(9),
        "/t.bin: the file has 9 bytes, which are not whole CIFAR records of 3073 bytes.",
        "cifar",
    )


def test_npz_compressed_and_of_other_types(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, data=np.arange(6.0).reshape(2, 3), y=np.array([[1], [2]]))
    with open_store(str(path)) as store:
        assert_same(read_all(store), {"data": np.arange(6, dtype=np.float32).reshape(2, 3), "label": np.int32([1, 2])})


def test_damaged_npz(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for arrays, message in (
        (
            {"pictures": PIXELS},
            "/x.npz: there is no array called images or image or pixel or data or features or x. Arrays: pictures.",
        ),
        ({"x": PIXELS, "y": np.arange(3)}, "/x.npz: the arrays have different lengths: {'x': 4, 'y': 3}."),
        (
            {"x": PIXELS, "y": np.zeros((4, 2))},
            "/x.npz: the labels have shape (4, 2), expected one label for each record.",
        ),
        ({"x": np.array(["a"])}, "/x.npz: x: the values are of type <U1, expected numbers."),
        ({"x": PIXELS[:0]}, "/x.npz: no records."),
        (
            {"X_train": PIXELS, "y_train": np.arange(4)},
            f"{NO_ARRAY} Arrays: X_train, y_train. "
            "Write a file for each part: numpy.savez('train.npz', images=X_train, labels=y_train), "
            "and the others as test.npz.",
        ),
        ({"X": PIXELS, "x": PIXELS}, "/x.npz: X and x could each be the images or data. Expected one array."),
        (
            {"x": PIXELS, "y": np.eye(4)},
            "/x.npz: the labels have shape (4, 4), expected one label for each record. If they are one-hot, write "
            "labels.argmax(1).",
        ),
        (
            {"x": PIXELS, "y": np.array(["a", "b", "a", "b"])},
            "/x.npz: y: the values are of type <U1, expected integers. "
            "numpy.unique(y, return_inverse=True) returns class_names to save, and labels.",
        ),
    ):
        np.savez(path, **arrays)
        refused(path, path.read_bytes(), message)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"what")
    refused(path, path.read_bytes(), "/x.npz: not an npz file, or a damaged one: not an npy file.")
    refused(path, b"12345", "/x.npz: not an npz file, or a damaged one: File is not a zip file.")


@pytest.mark.parametrize("names", [("X", "y"), ("features", "target"), ("Data", "Labels"), ("images", "targets")])
def test_npz_of_names_that_people_use(names: tuple[str, str], tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **{names[0]: np.arange(12.0).reshape(4, 3), names[1]: np.array([1, 0, 2, 1])})
    with open_store(str(tmp_path / "x.npz")) as store:
        block = store.read_block(0)
    assert block["data"].tolist() == np.arange(12.0).reshape(4, 3).tolist()
    assert block["label"].tolist() == [1, 0, 2, 1]


# -- parquet ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "list", "fixed list", "tensor"])
def test_parquet_of_others(kind: str, tmp_path: Path) -> None:
    flat = PIXELS.reshape(4, 90)
    values, shape = pa.array(flat.ravel()), (90,)
    column = {
        "binary": pa.array([row.tobytes() for row in flat], pa.binary(90)),
        "list": pa.array(list(flat)),
        "fixed list": pa.FixedSizeListArray.from_arrays(values, 90),
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(PIXELS),
    }[kind]
    shape = (3, 5, 6) if kind == "tensor" else shape
    pq.write_table(pa.table({"image": column, "label": pa.array([1, 2, 3, 4])}), tmp_path / "x.parquet")
    with open_store(str(tmp_path / "x.parquet")) as store:
        found = read_all(store)
    assert_same(found, {"pixel": PIXELS.reshape(4, *shape), "label": np.int32([1, 2, 3, 4])})


def test_damaged_parquet(tmp_path: Path) -> None:
    path = Path(written(tmp_path, "parquet", pixels(4000, (700,))))
    whole = bytearray(path.read_bytes())
    with open_store(str(path)) as store:
        second = store.blocks[1]
    whole[second.offset + 5000] ^= 1
    path.write_bytes(whole)
    with open_store(str(path)) as store:
        store.read_block(0)
        with pytest.raises(DataError, match=r"records\.parquet, block 1: .*CRC checksum verification failed"):
            store.read_block(1)
    with pytest.raises(DataError, match=r"records\.parquet: not a Parquet file, or a damaged one"):
        opened(path, bytes(whole[:-3]))


def test_parquet_records_that_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for columns, message in (
        ({"a": ["x"]}, "/x.parquet: there is no column of fixed-size binary or lists of numbers. Columns: a."),
        ({"x": [[1.0, 2.0], [1.0]]}, "/x.parquet, block 0, x, record 1: 1 values, expected 2."),
        ({"x": [[1.0], None]}, "/x.parquet, block 0, x: 1 record is null."),
        ({"x": [[1.0], [None]]}, "/x.parquet, block 0, x: 1 value is null."),
        (
            {"x": [[1.0]], "y": [1 << 40]},
            f"/x.parquet, block 0, y, record 0: the label {1 << 40} does not fit in 32 bits.",
        ),
    ):
        pq.write_table(pa.table(columns), path)
        refused(path, path.read_bytes(), message)


# -- tfrecord --------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_examples_of_all_layouts(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    # labels of one and of two bytes, and features in another order
    messages = [example({"image_raw": bytes([i] * 6), "label": 100 * i, "height": 2}, packed) for i in range(4)]
    messages.append(example({"label": 7, "image_raw": b"abcdef"}, packed))
    found = opened(path, b"".join(map(frame, messages)), shape=(2, 3))
    assert found["label"].tolist() == [0, 100, 200, 300, 7]
    assert found["pixel"].shape == (5, 2, 3)
    assert found["pixel"][4].tobytes() == b"abcdef"
    floats = opened(path, b"".join(frame(example({"x": [1.5, i]}, packed)) for i in range(2)))
    assert floats["data"].tolist() == [[1.5, 0.0], [1.5, 1.0]]


def test_columns_of_examples(tmp_path: Path) -> None:
    # integers of one to ten bytes: messages of several lengths and layouts
    ages, rows = (
        [0, 300, -5, 1 << 24],
        [{"pair": [i / 7, -1.5], "age": 0, "kind": b"ab"[i % 2 : i % 2 + 1]} for i in range(4)],
    )
    messages = [frame(example({**row, "age": age})) for row, age in zip(rows, ages, strict=True)]
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"".join(messages))
    with open_store(str(path), features=["age", "pair"], label="kind", classes=["a", "b"]) as store:
        found, facts = read_all(store), store.table_facts
    assert found["data"].tolist() == [[age, np.float32(i / 7), -1.5] for i, age in enumerate(ages)]
    assert found["label"].tolist() == [0, 1, 0, 1]
    assert facts is not None
    assert facts.names == ("age", "pair[0]", "pair[1]")
    with open_store(str(path), features="age") as store:
        assert read_all(store)["data"].tolist() == [[age] for age in ages]
    times = [1_700_000_001, 1_700_000_002]
    path.write_bytes(b"".join(frame(example({"pair": [1.0], "age": each})) for each in times))
    with open_store(str(path), features=["age", "pair"]) as store:
        store.widen()
        assert read_all(store)["data"].tolist() == [[each, 1.0] for each in times]
    path.write_bytes(messages[0] + frame(example({"pair": [1.0], "age": 1})))
    with (
        open_store(str(path), features=["age", "pair"]) as store,
        pytest.raises(DataError, match="record 1: holds data"),
    ):
        store.read_block(0)


def test_encoded_examples(tmp_path: Path) -> None:
    messages = [frame(example({"image/encoded": png(x), "image/class/label": i})) for i, x in enumerate(PIXELS)]
    found = opened(tmp_path / "x.tfrecord", b"".join(messages))
    assert_same(found, {"pixel": PIXELS, "label": np.arange(4, dtype=np.int32)})


def test_damaged_tfrecord(tmp_path: Path) -> None:
    path, message = tmp_path / "x.tfrecord", example({"image_raw": b"abc", "label": 1})
    good = frame(message)
    flipped = bytearray(good)
    flipped[20] ^= 1
    refused(path, good + flipped, f"/x.tfrecord, block 0, record 1 (byte {len(good)}): the crc32c is wrong.")
    refused(
        path,
        b"what is this?",
        "/x.tfrecord: record 0 at byte 0: the crc32c of its length is wrong, or this is not a TFRecord file.",
    )
    refused(
        path,
        good * 2 + good[:-1],
        f"/x.tfrecord: record 2 at byte {2 * len(good)} is incomplete: the file is truncated.",
    )
    refused(path, good + good[:5], f"/x.tfrecord: record 1 at byte {len(good)} is incomplete: the file is truncated.")
    other = frame(example({"pic": b"abc"}))
    names = "image/encoded or image_raw or image or images or pixel or data or x"
    refused(
        path,
        other,
        f"/x.tfrecord, block 0 (records from 0 on): record 0: there is no feature called {names}. Features: pic. "
        "Name the features of a record in user_conf: {features: [...]}.",
    )
    longer = frame(example({"image_raw": b"abcd", "label": 1}))
    refused(
        path,
        good + longer,
        "/x.tfrecord, block 0 (records from 0 on): record 1: holds pixel (4,) uint8, label () "
        "int32, other records hold pixel (3,) uint8, label () int32.",
    )
    refused(
        path,
        good,
        "/x.tfrecord, block 0 (records from 0 on): record 0: 3 values do not fit the shape (2, 2).",
        shape=(2, 2),
    )
    assert tail(b"") == struct.pack("<I", 0xA282EAD8)


# -- webdataset ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_all_forms(form: int, tmp_path: Path) -> None:
    long = "a" * 90 + "/" + "b" * 60
    files = [(f"{long}{i}.{s}", d) for i, x in enumerate(PIXELS) for s, d in (("png", png(x)), ("cls", b"%d\n" % i))]
    found = opened(tmp_path / "x.tar", tar(files, form))
    assert_same(found, {"pixel": PIXELS, "label": np.arange(4, dtype=np.int32)})


def npy(array: np.ndarray, path: Path) -> bytes:
    np.save(path, array)
    return path.read_bytes()


def test_damaged_tar(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    first, other = npy(np.zeros(2), tmp_path / "a.npy"), npy(np.zeros(3), tmp_path / "b.npy")
    refused(
        path,
        tar([("a.npy", first), ("b.npy", other)]),
        "/x.tar, block 0, record b: holds data (3,) float32, expected data (2,) float32.",
    )
    refused(
        path,
        tar([("a.npy", first), ("b.npy", first), ("a.cls", b"1")]),
        "/x.tar: the files of record a are not adjacent (byte 2048). Sort the files by name before they are put into "
        "the tar: tar --sort=name.",
    )
    refused(
        path,
        tar([("a.npy", first), ("a.cls", b"cat")]),
        "/x.tar, record a: the label 'cat' is not a 32-bit integer. Set classes for labels that are text.",
    )
    refused(path, tar([("a.cls", b"1")]), f"/x.tar, record a: the record has none of the files {VALUES}.")
    refused(
        path,
        tar([("a.txt", b"1")]),
        f"/x.tar: the tar has no records: it has no files {VALUES}. Its files end in: .txt.",
    )
    whole = tar([("a.npy", first), ("b.npy", first)])
    refused(path, whole[:1024], "/x.tar: there is no end-of-archive block at byte 1024: the tar is truncated.")
    refused(path, whole[:1100], "/x.tar: there is no end-of-archive block at byte 1024: the tar is truncated.")
    refused(path, whole[:600], "/x.tar: the file at byte 0 is incomplete: the tar is truncated.")
    refused(path, b"x" + whole[1:], "/x.tar: byte 0: not a tar header, or a damaged one.")
    with pytest.raises(DataError, match=r"x\.tar, record a: the npy file is damaged"):
        opened(path, tar([("a.npy", first[:-1])]))
    with pytest.raises(DataError, match=r"x\.tar, record a: not an image, or a damaged one"):
        opened(path, tar([("a.png", png(PIXELS[0])[:60])]))


# -- images ----------------------------------------------------------------------------------------


def test_images_are_resized_cropped_and_made_grey(tmp_path: Path) -> None:
    wide = np.zeros((3, 10, 30), np.uint8)
    # what is not in the middle square is cropped away
    wide[:, :, 10:20] = 200
    path = tmp_path / "a" / "x.jpg"
    path.parent.mkdir()
    path.write_bytes(png(wide, "PNG"))
    with open_store(str(tmp_path), "image-folder", resize=(5, 5), channels=1) as store:
        assert store.schema["pixel"].shape == (1, 5, 5)
        assert (read_all(store)["pixel"] > 150).all()


def test_images_without_classes_have_no_labels(tmp_path: Path) -> None:
    for i, pixels_of_one in enumerate(PIXELS):
        (tmp_path / f"{i}.png").write_bytes(png(pixels_of_one))
    (tmp_path / "none").mkdir()
    with open_store(str(tmp_path), "image-folder") as store:
        assert list(store.schema) == ["pixel"]
        assert_same(read_all(store), {"pixel": PIXELS})
        assert list(store.salvage(0)[0]) == ["pixel"]
    (tmp_path / "none" / "4.png").write_bytes(png(PIXELS[0]))
    with open_store(str(tmp_path), "image-folder") as store:
        assert_same(read_all(store), {"pixel": PIXELS[:1], "label": np.zeros(1, np.int32)})


def test_images_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = write_foreign(tmp_path, "image-list", {"pixel": PIXELS, "label": np.zeros(4, np.int32)})
    other = tmp_path / "classes" / "class-0" / "000003.png"
    other.write_bytes(png(PIXELS[0][:, :3]))
    with open_store(url, "image-list") as store, pytest.raises(DataError) as caught:
        read_all(store)
    assert str(caught.value) == (
        f"{other}: the image has shape (3, 3, 6), but the first has (3, 5, 6). "
        "Pass --resize HxW, or set resize: [H, W] in the job."
    )
    refused(
        tmp_path / "list.txt",
        b"a.png 1\nb.png\n",
        "/list.txt, line 2: the line is 'b.png', expected a name and a label.",
        "image-list",
    )
    with pytest.raises(DataError, match=r"none\.png: no such file"):
        opened(tmp_path / "list.txt", b"none.png 1\n", "image-list")
    with pytest.raises(DataError, match=r"list\.txt: neither a directory of images"):
        open_store(url, "image-folder")
    monkeypatch.setattr(image_decoding, "Image", LazyModule("not_installed"))
    with pytest.raises(
        DataError, match=r"Pillow is needed to decode images\. Install it: pip install 'singa-dask\[images\]'"
    ):
        open_store(str(tmp_path / "classes"), "image-folder")


# -- shards ----------------------------------------------------------------------------------------


def test_shards_are_one_store(tmp_path: Path) -> None:
    records = pixels(3000, (1000,))
    for i, first in enumerate(range(0, 3000, 1200)):
        written(tmp_path, "arrow", {k: v[first : first + 1200] for k, v in records.items()}, f"part-{i}")
    with open_store(str(tmp_path / "part-*.arrow")) as store:
        assert [block.id for block in store.blocks] == list(range(len(store.blocks)))
        assert_same(read_all(store), records)
    with pytest.raises(DataError, match=r"none-\*: no such file or directory, nothing matches"):
        open_store(str(tmp_path / "none-*"))
    written(tmp_path, "arrow", pixels(3), "part-9")
    with pytest.raises(DataError, match=r"part-9\.arrow: holds pixel \(3, 4\) uint8.*like .*part-0\.arrow"):
        open_store(str(tmp_path / "part-*.arrow"), "arrow")
