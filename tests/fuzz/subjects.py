"""SUBJECTS: a small file of each store, and of each of its variants, to be damaged; a new store is a new entry."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather, orc

from singa_dask.data.stores import write_manifest
from singa_dask.data.stores.manifest import manifest_url
from singa_dask.data.types import Arrays
from tests.contracts.foreign import example, frame, png, shape_of, tar, write_foreign, write_hdf5, write_zarr, zipped
from tests.contracts.records import pixels, written
from tests.data.stores.test_lmdb import datum, write_values

__all__ = ["SUBJECTS", "Subject"]

N = 60


def records_of(shape: tuple[int, ...] = (3, 4, 5)) -> Arrays:
    records = pixels(N, shape)
    records["label"] = np.sort(np.arange(N, dtype=np.int32) % 3)
    return records


@dataclass(frozen=True)
class Subject:
    """A store that is damaged.

    Attributes
    ----------
    store : str
        Name in STORES.
    write : callable
        Writes the store into a folder, and returns its URL.
    checked : bool
        Every change of a record is found, by checksums of the format, or of its manifest.
    manifest : bool
        The store has a manifest, which is damaged too.
    files : str
        Pattern of the files in the folder that are damaged.
    options : mapping
        To open the store.
    named : bool
        The store is opened by its name, since its format cannot be detected.
    """

    store: str
    write: Callable[[Path], str]
    checked: bool = False
    manifest: bool = False
    files: str = "*"
    options: Mapping[str, Any] = field(default_factory=dict)
    named: bool = False


def ours(store: str, **options: Any) -> Callable[[Path], str]:
    return lambda folder: written(folder, store, records_of(), **options)


def foreign(store: str) -> Callable[[Path], str]:
    return lambda folder: write_foreign(folder, store, records_of(shape_of(store)))


def with_manifest(write: Callable[[Path], str], store: str | None = None, **options: Any) -> Callable[[Path], str]:
    def write_both(folder: Path) -> str:
        url = write(folder)
        assert write_manifest(url, store, **options) == [manifest_url(url)]
        return url

    return write_both


def gzipped(store: str) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        url = zipped(Path(foreign(store)(folder)))
        Path(url).with_suffix("").unlink()
        return url

    return write


def compressed_npz(folder: Path) -> str:
    records = records_of()
    np.savez_compressed(folder / "records.npz", x=records["pixel"], y=records["label"])
    return str(folder / "records.npz")


def hdf5(**options: Any) -> Callable[[Path], str]:
    return lambda folder: write_hdf5(folder / "records.h5", records_of(), **options)


def hdf5_not_in_chunks(folder: Path) -> str:
    records = records_of()
    with h5py.File(folder / "records.h5", "w") as file:
        file.create_dataset("x", data=records["pixel"] / np.float32(7))
        file.create_dataset("y", data=[f"kind {label}" for label in records["label"]])
    return str(folder / "records.h5")


def in_zarr(**options: Any) -> Callable[[Path], str]:
    return lambda folder: write_zarr(folder / "records.zarr", records_of(), **options)


def caffe(folder: Path) -> str:
    # pages of branches, too
    records = pixels(1500, (1, 2, 8))
    values = [datum(*pair) for pair in zip(records["pixel"], records["label"].tolist(), strict=True)]
    return write_values(folder, values)


def npy_tar(folder: Path) -> str:
    records = records_of()
    files = []
    for i, (pixel, label) in enumerate(zip(records["pixel"], records["label"].tolist(), strict=True)):
        np.save(folder / "one.npy", pixel)
        files += [(f"{i:06d}.npy", (folder / "one.npy").read_bytes()), (f"{i:06d}.cls", str(label).encode())]
    (folder / "one.npy").unlink()
    (folder / "records.tar").write_bytes(tar(files))
    return str(folder / "records.tar")


def shards(folder: Path) -> str:
    for name in "ab":
        written(folder, "kvfile", records_of(), name)
    write_manifest(str(folder / "*.bin"))
    return str(folder / "*.bin")


def lines(folder: Path) -> str:
    (folder / "lines.txt").write_text("".join(f"line {i}\n" for i in range(N)))
    return str(folder / "lines.txt")


def json_lines(folder: Path) -> str:
    (folder / "lines.jsonl").write_text(
        "".join(f'{{"data": [{i}, {i / 7}, -1e3], "label": {i % 3}}}\n' for i in range(N))
    )
    return str(folder / "lines.jsonl")


def table_csv(folder: Path) -> str:
    rows = "".join(f'{i},{i / 7},"kind {i % 3}"\n' for i in range(N))
    (folder / "table.csv").write_text(f"number,part,kind\n{rows}")
    return str(folder / "table.csv")


def table_parquet(folder: Path) -> str:
    columns = {"number": np.arange(N), "part": np.arange(N) / 7, "kind": [f"kind {i % 3}" for i in range(N)]}
    pq.write_table(pa.table(columns), folder / "table.parquet", row_group_size=20, write_page_checksum=True)
    return str(folder / "table.parquet")


def in_columns(name: str) -> Callable[[Path], str]:
    """Return a function that writes lists of numbers as a file of columns that is held in memory."""

    def write(folder: Path) -> str:
        table, path = (
            pa.table({"x": [[i, i / 7, -1e3] for i in range(N)], "y": [i % 3 for i in range(N)]}),
            folder / name,
        )
        if name.endswith(".orc"):
            orc.write_table(table, path)
        elif name.endswith(".feather"):
            feather.write_feather(table, str(path), chunksize=20)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table, 20)
        return str(path)

    return write


def cubes(name: str) -> Callable[[Path], str]:
    """Return a function that writes records with axes: tensors with permuted ones, or nested lists."""

    def write(folder: Path) -> str:
        numbers = np.arange(N * 6, dtype=np.int16)
        kind = pa.fixed_shape_tensor(pa.int16(), (2, 3), permutation=[1, 0])
        tensors = pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(numbers, 6))
        nested = pa.array(numbers.reshape(N, 2, 3).tolist(), pa.list_(pa.list_(pa.int16())))
        table = pa.table({"x": tensors if "tensors" in name else nested, "y": [i % 3 for i in range(N)]})
        if name.endswith(".parquet"):
            pq.write_table(table, folder / name, row_group_size=20, write_page_checksum=True)
        else:
            with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, 20)
        return str(folder / name)

    return write


def vectors(folder: Path) -> str:
    columns = {"v": [[i, i / 7] for i in range(N)], "x": np.arange(N) / 3, "kind": [f"kind {i % 3}" for i in range(N)]}
    pq.write_table(pa.table(columns), folder / "vectors.parquet", row_group_size=20, write_page_checksum=True)
    return str(folder / "vectors.parquet")


def examples(folder: Path) -> str:
    values = [example({"age": i, "embedding": [i / 7, -1e3] * 30, "label": i % 3}) for i in range(N)]
    (folder / "examples.tfrecord").write_bytes(b"".join(map(frame, values)))
    return str(folder / "examples.tfrecord")


def encoded_caffe(folder: Path) -> str:
    encoded = [np.frombuffer(png(pixel), np.uint8) for pixel in records_of()["pixel"]]
    return write_values(folder, [datum(data, i % 3, encoded=True) for i, data in enumerate(encoded)])


def nested_folders(folder: Path) -> str:
    for i, pixel in enumerate(records_of()["pixel"][:8]):
        (folder / f"{i % 2}" / f"{i % 4}").mkdir(parents=True, exist_ok=True)
        (folder / f"{i % 2}" / f"{i % 4}" / f"{i}.png").write_bytes(png(pixel))
    return str(folder)


def pictures_in_parquet(folder: Path) -> str:
    records = records_of()
    images = [{"bytes": png(pixel), "path": None} for pixel in records["pixel"]]
    table = pa.table({"image": images, "label": records["label"].astype(np.int64)})
    pq.write_table(table, folder / "records.parquet", row_group_size=16)
    return str(folder / "records.parquet")


def folders(folder: Path) -> str:
    url = foreign("image-folder")(folder)
    for i in range(3):
        files = sorted((Path(url) / f"class-{i}").iterdir())
        for path in files[4:]:
            path.unlink()
    return url


def picture_list(folder: Path) -> str:
    (folder / "classes").mkdir()
    pixel = records_of()["pixel"]
    for i in range(8):
        (folder / "classes" / f"{i}.png").write_bytes(png(pixel[i]))
    (folder / "list.txt").write_text("".join(f"classes/{i}.png {i % 3}\n" for i in range(8)))
    return str(folder / "list.txt")


SUBJECTS: Mapping[str, Subject] = {
    "arrow": Subject("arrow", ours("arrow", block_bytes=2000)),
    "arrow lz4": Subject("arrow", ours("arrow", block_bytes=2000, compression="lz4")),
    "arrow manifest": Subject("arrow", with_manifest(ours("arrow", block_bytes=2000)), True, True),
    "arrow lz4 manifest": Subject("arrow", with_manifest(ours("arrow", compression="lz4")), True, True),
    "arrow of tensors": Subject("parquet", cubes("tensors.arrow")),
    "cifar": Subject("cifar", foreign("cifar"), named=True),
    "cifar manifest": Subject("cifar", with_manifest(foreign("cifar"), "cifar"), True, True, named=True),
    "csv": Subject("csv", ours("csv")),
    "csv manifest": Subject("csv", with_manifest(ours("csv")), True, True),
    "hdf5": Subject("hdf5", hdf5_not_in_chunks),
    "hdf5 chunks": Subject("hdf5", hdf5()),
    "hdf5 gzip": Subject("hdf5", hdf5(compression="gzip", shuffle=True, fletcher32=True)),
    "hdf5 lzf": Subject("hdf5", hdf5(compression="lzf")),
    "hdf5 manifest": Subject("hdf5", with_manifest(hdf5()), True, True),
    "idx": Subject("idx", foreign("idx")),
    "idx gz": Subject("idx", gzipped("idx"), files="*images*"),
    "idx manifest": Subject("idx", with_manifest(foreign("idx")), True, True),
    "image-folder": Subject("image-folder", folders),
    "image-folder nested": Subject("image-folder", nested_folders, options={"class_folder": "first"}, named=True),
    "image-folder manifest": Subject("image-folder", with_manifest(folders), True, True),
    "image-list": Subject("image-list", picture_list, named=True),
    "image-list manifest": Subject("image-list", with_manifest(picture_list, "image-list"), True, True, named=True),
    "image-parquet": Subject("image-parquet", pictures_in_parquet, named=True),
    "jsonl": Subject("jsonl", json_lines),
    "jsonl manifest": Subject("jsonl", with_manifest(json_lines), True, True),
    "kvfile": Subject("kvfile", ours("kvfile")),
    "kvfile manifest": Subject("kvfile", with_manifest(ours("kvfile")), True, True),
    "kvfile uneven manifest": Subject("kvfile", with_manifest(ours("kvfile", keys="%d")), True, True),
    "lines": Subject("lines", lines, named=True),
    "lines manifest": Subject("lines", with_manifest(lines, "lines"), True, True, named=True),
    "lmdb": Subject("lmdb", ours("lmdb", records_per_value=16)),
    "lmdb manifest": Subject("lmdb", with_manifest(ours("lmdb", records_per_value=16)), True, True),
    "lmdb datum": Subject("lmdb", caffe),
    "lmdb encoded datum": Subject("lmdb", encoded_caffe),
    "lmdb datum manifest": Subject("lmdb", with_manifest(caffe), True, True),
    "npy": Subject("npy", foreign("npy")),
    "npy manifest": Subject("npy", with_manifest(foreign("npy")), True, True),
    "npz": Subject("npz", ours("npz"), True),
    "npz manifest": Subject("npz", with_manifest(ours("npz")), True, True),
    "npz compressed": Subject("npz", compressed_npz),
    "feather": Subject("parquet", in_columns("x.feather")),
    "feather manifest": Subject("parquet", with_manifest(in_columns("x.feather")), True, True),
    "orc": Subject("parquet", in_columns("x.orc")),
    "stream": Subject("parquet", in_columns("x.arrow")),
    "parquet": Subject("parquet", ours("parquet", block_bytes=2000), True),
    "parquet manifest": Subject("parquet", with_manifest(ours("parquet", block_bytes=2000)), True, True),
    "image-parquet manifest": Subject(
        "image-parquet", with_manifest(pictures_in_parquet, "image-parquet"), True, True, named=True
    ),
    "parquet zstd": Subject("parquet", ours("parquet", compression="zstd"), True),
    "parquet of nested lists": Subject("parquet", cubes("lists.parquet"), True),
    "shards": Subject("shards", shards, True, True),
    "table csv": Subject("table", table_csv, options={"label": "kind"}, named=True),
    "table parquet": Subject("table", table_parquet, options={"label": "kind"}, named=True),
    "table of vectors": Subject("table", vectors, options={"features": ["v", "x"], "label": "kind"}, named=True),
    "table csv manifest": Subject(
        "table",
        with_manifest(table_csv, "table", label="kind"),
        True,
        True,
        options={"label": "kind"},
        named=True,
    ),
    "table parquet manifest": Subject(
        "table",
        with_manifest(table_parquet, "table", label="kind"),
        True,
        True,
        options={"label": "kind"},
        named=True,
    ),
    "textfile": Subject("textfile", ours("textfile")),
    "tfrecord": Subject("tfrecord", foreign("tfrecord"), True),
    "tfrecord manifest": Subject("tfrecord", with_manifest(foreign("tfrecord")), True, True),
    "tfrecord features": Subject("tfrecord", examples, True, options={"features": ["age", "embedding"]}, named=True),
    "tfrecord gz": Subject("tfrecord", gzipped("tfrecord"), True),
    "webdataset": Subject("webdataset", foreign("webdataset")),
    "webdataset npy": Subject("webdataset", npy_tar),
    "webdataset manifest": Subject("webdataset", with_manifest(npy_tar), True, True),
    "webdataset gz": Subject("webdataset", gzipped("webdataset"), True),
    "zarr 2": Subject("zarr", in_zarr(version=2)),
    "zarr 3": Subject("zarr", in_zarr()),
    "zarr 3 shards": Subject("zarr", in_zarr(rows=8, shards=(32, 3, 4, 5))),
    "zarr 3 manifest": Subject("zarr", with_manifest(in_zarr()), True, True),
}


def copy(source: Path, target: Path) -> None:
    """Replace a folder by a copy of another."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
