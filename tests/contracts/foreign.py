"""Files of records as others write them: the formats that we only read."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from singa_dask.data.codecs import protobuf
from singa_dask.data.types import Arrays
from singa_dask.fs.checksums import checksum_of, masked

NAMES = {
    "cifar": "batch.bin",
    "hdf5": "records.h5",
    "idx": "train-images-idx3-ubyte",
    "image-folder": "classes",
    "image-list": "list.txt",
    "npy": "images.npy",
    "npz": "records.npz",
    "tfrecord": "records.tfrecord",
    "webdataset": "records.tar",
    "zarr": "records.zarr",
}
FOREIGN = sorted(NAMES)


def shape_of(backend: str) -> tuple[int, ...]:
    """Return a shape that records of a format may have."""
    known = {"cifar": (3, 32, 32), "tfrecord": (20,)} | dict.fromkeys(("hdf5", "idx", "npy", "npz", "zarr"), (4, 5))
    return known.get(backend, (3, 4, 5))


def write_foreign(folder: Path, backend: str, records: Arrays) -> str:
    """Write pixels and labels, and return where they are."""
    path = folder / NAMES[backend]
    pixel, label = records["pixel"], records["label"]
    if backend == "cifar":
        rows = np.concatenate([label[:, None].astype(np.uint8), pixel.reshape(len(pixel), -1)], axis=1)
        path.write_bytes(rows.tobytes())
    elif backend == "hdf5":
        write_hdf5(path, records, compression="gzip", shuffle=True, fletcher32=True)
    elif backend == "zarr":
        write_zarr(path, records)
    elif backend == "idx":
        path.write_bytes(idx(pixel))
        (folder / "train-labels-idx1-ubyte").write_bytes(idx(label))
    elif backend == "npy":
        np.save(path, pixel)
        np.save(folder / "labels.npy", label.astype(np.int64))
    elif backend == "npz":
        np.savez(path, images=pixel, labels=label.astype(np.int64))
    elif backend == "tfrecord":
        path.write_bytes(
            b"".join(
                frame(example({"image_raw": x.tobytes(), "label": int(y)})) for x, y in zip(pixel, label, strict=True)
            )
        )
    elif backend == "webdataset":
        files = [
            (f"{i:06d}.{suffix}", data)
            for i, (x, y) in enumerate(zip(pixel, label, strict=True))
            for suffix, data in (("png", png(x)), ("cls", str(y).encode()), ("json", b"{}"))
        ]
        path.write_bytes(tar(files))
    else:
        write_images(folder, backend, records)
    return str(path)


def write_hdf5(path: Path, records: Arrays, rows: int = 16, **options: object) -> str:
    """Write images in chunks of some records, and labels, and return where they are."""
    pixel = records["pixel"]
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=pixel, chunks=(min(rows, len(pixel)), *pixel.shape[1:]), **options)
        file.create_dataset("labels", data=records["label"].astype(np.int64))
    return str(path)


def write_zarr(path: Path, records: Arrays, version: int = 3, rows: int = 16, **options: object) -> str:
    """Write images in chunks of some records, and labels, and return where they are."""
    # it needs Python 3.11
    import zarr

    pixel = records["pixel"]
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    chunks = (min(rows, len(pixel)), *pixel.shape[1:])
    group.create_array("images", data=pixel, chunks=chunks, **options)
    group.create_array("labels", data=records["label"].astype(np.int64))
    return str(path)


def write_images(folder: Path, backend: str, records: Arrays) -> None:
    """Write PNG files, by class or with a list; labels must be sorted and without gaps for a folder of classes."""
    lines = []
    for i, (pixel, label) in enumerate(zip(records["pixel"], records["label"].tolist(), strict=True)):
        name = f"class-{label}/{i:06d}.png"
        path = folder / "classes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(pixel))
        lines.append(f"classes/{name} {label}\n")
    if backend == "image-list":
        (folder / NAMES[backend]).write_text("".join(lines))


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def png(pixel: np.ndarray, kind: str = "PNG") -> bytes:
    """Encode (3, height, width) bytes."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixel.transpose(1, 2, 0))).save(file, kind)
    return file.getvalue()


def tar(files: Sequence[tuple[str, bytes]], form: int = tarfile.USTAR_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def frame(message: bytes) -> bytes:
    """Put a message into a TFRecord."""
    length = struct.pack("<Q", len(message))
    return length + checksum(length) + message + checksum(message)


def checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked(checksum_of(data)))


def example(features: dict[str, bytes | int | list[float]], packed: bool = True) -> bytes:
    """Encode a tf.train.Example."""
    entries = []
    for name, value in features.items():
        if isinstance(value, bytes):
            feature = field(1, field(1, value))
        elif isinstance(value, int):
            integer = protobuf.varint(value)
            feature = field(3, field(1, integer) if packed else protobuf.key(1, protobuf.VARINT) + integer)
        else:
            feature = field(2, field(1, struct.pack(f"<{len(value)}f", *value)))
        entries.append(field(1, field(1, name.encode()) + field(2, feature)))
    return field(1, b"".join(entries))


def field(number: int, content: bytes) -> bytes:
    return protobuf.key(number, protobuf.BYTES) + protobuf.varint(len(content)) + content


def zipped(path: Path) -> str:
    """Gzip a file, and return where that is."""
    other = path.with_name(f"{path.name}.gz")
    other.write_bytes(gzip.compress(path.read_bytes()))
    return str(other)
