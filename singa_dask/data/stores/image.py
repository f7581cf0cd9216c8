"""Image files: a folder of images, a folder per class, or a list of names and labels."""

from __future__ import annotations

import posixpath
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from singa_dask.data import fs
from singa_dask.data.codecs.image import IMAGE_SUFFIXES, decode_image, is_image
from singa_dask.data.codecs.record import salvage_rows
from singa_dask.data.stores.store import BLOCK_BYTES, MANIFEST_DIR, STORES, Store
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import DataError

__all__ = ["ImageFolderStore", "ImageListStore"]

INT32 = np.iinfo(np.int32)


class _ImageStore(Store):
    """Image files, with or without labels. Small files are slow on any filesystem: consider converting them.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    resize : (height, width), optional
        Without it all images must have the same size.
    channels : {3, 1}
        RGB or grey.
    """

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        resize: Sequence[int] | None = None,
        channels: int = 3,
    ) -> None:
        super().__init__(url, storage_options, resize=resize and tuple(resize), channels=channels)
        self._files, self._labels = self.list_images()
        if not self._files:
            raise DataError(f"{url}: no images ({', '.join(IMAGE_SUFFIXES)}).")
        first = self._decode(self._files[0])
        self.schema = {"pixel": Field(first.dtype, first.shape)}
        if self._labels:
            self.schema["label"] = Field(np.dtype(np.int32))
        n, count = max(1, BLOCK_BYTES // first.size), len(self._files)
        self.blocks = tuple(
            Block(i, min(n, count - start), url, start, min(n, count - start) * first.size)
            for i, start in enumerate(range(0, count, n))
        )

    @abstractmethod
    def list_images(self) -> tuple[list[str], list[int]]:
        """Return URL and label of each image; an empty list of labels if there are none."""

    def _decode(self, url: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        data = fs.read_bytes(url, storage_options=self.storage_options)
        return decode_image(data, url, self.options["resize"], self.options["channels"])

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n

        def read_row(row: int) -> Arrays:
            record: Arrays = {"pixel": self._decode(self._files[first + row])}
            if self._labels:
                record["label"] = np.array(self._labels[first + row], np.int32)
            return record

        return salvage_rows(n, self.schema, read_row)

    def read_block(self, block_id: int) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        pixels = np.empty((n, *self.schema["pixel"].shape), np.uint8)
        for row, url in enumerate(self._files[first : first + n]):
            image = self._decode(url)
            if image.shape != pixels.shape[1:]:
                raise DataError(
                    f"{url}: an image of {image.shape}, expected {pixels.shape[1:]} like the first. "
                    "Convert with --resize."
                )
            pixels[row] = image
        if not self._labels:
            return {"pixel": pixels}
        return {"pixel": pixels, "label": np.array(self._labels[first : first + n], np.int32)}

    def record_files(self, first: int, stop: int) -> list[str]:
        return self._files[first:stop]

    def close(self) -> None:
        pass


@STORES.register("image-folder")
class ImageFolderStore(_ImageStore):
    """Images by class: ``folder/<class>/<name>.png``; labels are the indices of the sorted class names.

    The names of the folders are the ``class_names``; hidden folders are ignored. Without such folders, the images in
    the folder itself are records without labels. The URL of an image is a store of one record.
    """

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return is_image(head)

    def list_images(self) -> tuple[list[str], list[int]]:
        if not fs.is_dir(self.url, self.storage_options):
            if not fs.exists(self.url, self.storage_options):
                raise DataError(f"{self.url}: no such file or directory.")
            if not is_image(fs.read_bytes(self.url, 0, 8, self.storage_options)):
                raise DataError(f"{self.url}: neither a directory of images nor a PNG or JPEG image.")
            return [self.url], []
        entries = [name for name in fs.ls(self.url, self.storage_options) if name != MANIFEST_DIR and name[0] != "."]
        classes = [name for name in entries if fs.is_dir(fs.join(self.url, name), self.storage_options)]
        files, labels = list[str](), list[int]()
        for label, name in enumerate(classes):
            found = self._images(fs.join(self.url, name))
            files += found
            labels += [label] * len(found)
        if not files:
            return self._images(self.url), []
        self.class_names = tuple(classes)
        return files, labels

    def _images(self, folder: str) -> list[str]:
        names = fs.ls(folder, self.storage_options)
        return [fs.join(folder, name) for name in names if name.lower().endswith(IMAGE_SUFFIXES)]


@STORES.register("image-list")
class ImageListStore(_ImageStore):
    """Images of a list: lines of ``name label``, names relative to the directory of the list."""

    def list_images(self) -> tuple[list[str], list[int]]:
        text = fs.read_bytes(self.url, storage_options=self.storage_options).decode(errors="replace")
        files, labels = list[str](), list[int]()
        for number, line in enumerate(text.splitlines(), 1):
            name, _, label = line.strip().rpartition(" ")
            if not line.strip():
                continue
            if not name or not label.removeprefix("-").isdecimal():
                raise DataError(f"{self.url}, line {number}: {line.strip()!r}, expected a name and a label.")
            files.append(name.strip() if "://" in name else fs.join(posixpath.dirname(self.url), name.strip()))
            if not INT32.min <= int(label) <= INT32.max:
                raise DataError(f"{self.url}, line {number}: the label {label} does not fit in 32 bits.")
            labels.append(int(label))
        return files, labels
