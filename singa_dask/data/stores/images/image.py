"""Image files: a folder of images, one folder per class, or a list of names and labels."""

from __future__ import annotations

import logging
import posixpath
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many
from singa_dask.data.blocks import BLOCK_BYTES, counted_blocks
from singa_dask.data.codecs.class_lists import read_classes
from singa_dask.data.codecs.equal_names import NameNumbers, distinct_names
from singa_dask.data.codecs.salvage import salvage_rows
from singa_dask.data.stores.images.image_decoding import (
    HEAD_BYTES,
    IMAGE_SUFFIXES,
    ImageOptions,
    decode_image,
    is_image,
)
from singa_dask.data.stores.manifest import find_manifest, name_of
from singa_dask.data.stores.store import MANIFEST_DIR, SPLIT, STORES, Store, StoreOptions, advice_for
from singa_dask.data.types import Arrays, Field, FileSum
from singa_dask.data.warn_once import warn_once
from singa_dask.errors import DataError, MissingPackageError
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.io_threads import decode_threads, map_ahead
from singa_dask.fs.open_bytes import decode_text
from singa_dask.redaction import readable
from singa_dask.shown import plural
from singa_dask.texts import split_lines
from singa_dask.wording import listed

logger = logging.getLogger(__name__)

INT32 = np.iinfo(np.int32)
DECODED_TOGETHER = 8
"""Number of image files that a thread decodes at a time."""
OF_SYSTEMS = "__MACOSX", "Thumbs.db", "desktop.ini"
"""Files, apart from hidden files, that operating systems add to folders."""


class ImageFileOptions(ImageOptions, StoreOptions):
    """Options of image files. Without ``resize`` all images must have the same size."""


class _ImageStore(Store):
    """Image files, with or without labels. Small files are slow to read: consider converting them."""

    options_class = ImageFileOptions
    holds = "images"
    reads_labels_alone = True

    def __init__(self, url: str, storage_options: fs.Options = None, **options: Any) -> None:
        super().__init__(url, storage_options, **options)
        self._files, self._labels = self.list_images()
        if not self._files:
            raise DataError(f"{url}: there are no images ({', '.join(IMAGE_SUFFIXES)}).")
        self._sums: dict[str, FileSum] = {}
        first = self._first_image()
        self.schema = {"pixel": Field(first.dtype, first.shape)}
        if self._labels:
            self.schema["label"] = Field(np.dtype(np.int32))
        n, count = max(1, BLOCK_BYTES // first.size), len(self._files)
        self.blocks = counted_blocks(url, count, n, first.size)
        self._use_manifest()

    @abstractmethod
    def list_images(self) -> tuple[list[str], list[int]]:
        """Return URL and label of each image. If there are no labels, the list of labels is empty."""

    def _first_image(self) -> npt.NDArray[np.uint8]:
        """Decode the first undamaged image; if all are damaged, raise the error of the first image."""
        fault: DataError | None = None
        for url in self._files:
            try:
                return self._decode(url)
            except MissingPackageError:
                raise
            except DataError as error:
                fault = fault or error
        assert fault is not None
        raise fault

    def _decode(self, url: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        data = self._read(url)
        try:
            return decode_image(data, url, self.options["resize"], self.options["channels"])
        except MissingPackageError:
            raise
        except DataError as error:
            raise DataError(f"{error} Remove the file. Training passes over such files with on_error: skip.") from error

    def _read(self, url: str) -> bytes:
        """Return the content of a file. If there is a manifest, its checksum is verified."""
        data = fs.read_bytes(url, storage_options=self.storage_options)
        known = self._sums.get(name_of(url, self.url)) if self._sums else None
        if known is not None and (len(data), crc := checksum_of(data)) != known[1:]:
            at = self._files.index(url) if url in self._files else None
            block = f", block {np.searchsorted(self.starts, at, 'right') - 1}" if at is not None else ""
            raise DataError(
                f"{url}{block}: the file has {len(data)} bytes and crc32c {crc:08x}, expected {known.n_bytes} and "
                f"{known.crc:08x}. {advice_for(self.url)}"
            )
        return data

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n

        def read_row(row: int) -> Arrays:
            record: Arrays = {"pixel": self._decode(self._files[first + row])}
            if self._labels:
                record["label"] = np.array(self._labels[first + row], np.int32)
            return record

        return salvage_rows(n, self.schema, read_row)

    def read_block(self, block_id: int) -> Arrays:
        return self.read_rows(block_id, np.arange(self.blocks[block_id].n))

    def read_rows(self, block_id: int, rows: npt.NDArray[np.int64]) -> Arrays:
        pixels = np.empty((len(rows), *self.schema["pixel"].shape), np.uint8)
        numbers = (self.starts[block_id] + rows).tolist()

        def decode(first: int) -> None:
            for row in range(first, min(first + DECODED_TOGETHER, len(numbers))):
                url = self._files[numbers[row]]
                image = self._decode(url)
                if image.shape != pixels.shape[1:]:
                    raise DataError(
                        f"{url}: the image has shape {image.shape}, but the first has {pixels.shape[1:]}. Pass "
                        f"--resize HxW, or set resize: [H, W] in the job."
                    )
                pixels[row] = image

        threads = decode_threads()
        for _ in map_ahead(decode, range(0, len(numbers), DECODED_TOGETHER), threads, 2 * threads.n):
            pass
        if not self._labels:
            return {"pixel": pixels}
        return {"pixel": pixels, "label": self.read_labels(block_id)[rows]}

    def read_labels(self, block_id: int) -> npt.NDArray[np.int32]:
        first = int(self.starts[block_id])
        return np.array(self._labels[first : first + self.blocks[block_id].n], np.int32)

    # -- the manifest, with checksums of files, because images are read one by one ------------------------

    def list_file(self) -> str:
        """Return the URL of the file that lists the images; empty for a directory of images."""
        return ""

    def _use_manifest(self) -> None:
        manifest = find_manifest(self.url, self.backend_name(), self.url, 0, self.storage_options)
        if manifest is None:
            return
        if not manifest.files:
            manifest.dismiss()
            return
        self.class_names = self.class_names or manifest.class_names
        manifest.check_files(self, self._all_files())
        if manifest.options == self.manifest_options():
            manifest.check_described(self.url, self.schema, self.class_names)
        self._sums = {each.name: each for each in manifest.files}
        self.blocks = tuple(replace(block, crc=checksum_of(self.block_bytes(block.id))) for block in self.blocks)
        if self.list_file():
            self._read(self.list_file())

    def _all_files(self) -> list[str]:
        # a list may name an image twice
        return list(dict.fromkeys([*self._files, *filter(None, [self.list_file()])]))

    def manifest_info(self) -> dict[str, Any]:
        return {"bytes": 0}

    def file_sums(self) -> list[FileSum]:
        self._sums = {}
        for url in self._all_files():
            name, data = name_of(url, self.url), self._read(url)
            self._sums[name] = FileSum(name, len(data), checksum_of(data))
        return list(self._sums.values())

    def block_bytes(self, block_id: int) -> bytes:
        """Return the checksums of the files of a block."""
        files = self._files[int(self.starts[block_id]) : int(self.starts[block_id + 1])]
        return np.array([self._sums[name_of(url, self.url)].crc for url in files], "<u4").tobytes()

    def record_files(self, first: int, stop: int) -> list[str]:
        return self._files[first:stop]

    def close(self) -> None:
        pass


class ImageFolderOptions(ImageFileOptions):
    """Options of folders of images."""

    class_folder: Literal["", "first", "last"] = ""
    """Folder that is the class of an image in nested folders: the first, ``cat`` of ``cat/tabby/1.png``, or the last,
    ``tabby``. Required for such images."""


@STORES.register("image-folder")
class ImageFolderStore(_ImageStore):
    """Images in one folder per class: ``folder/<class>/<name>.png``.

    The class names are the names of the folders, and labels are the indices of the sorted names. Images in nested
    folders are refused unless ``class_folder`` selects the folder that names the class. If there are no folders with
    images, the images in the folder itself are records without labels. Hidden files are ignored. A warning names other
    files that are not images, and folders without images. The URL of an image is a store with one record.
    """

    options_class = ImageFolderOptions

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return is_image(head)

    def list_images(self) -> tuple[list[str], list[int]]:
        if not fs.is_dir(self.url, self.storage_options):
            if not fs.exists(self.url, self.storage_options):
                raise fs.no_file(self.url, self.storage_options)
            n_bytes = min(HEAD_BYTES, fs.size(self.url, self.storage_options))
            if not is_image(fs.read_bytes(self.url, 0, n_bytes, self.storage_options)):
                raise DataError(f"{self.url}: neither a directory of images nor an image.")
            return [self.url], []
        entries = entries_of(self.url, self.storage_options)
        folders = [name for name in entries if fs.is_dir(fs.join(self.url, name), self.storage_options)]
        files, texts = list[str](), list[str]()
        others, which = [name for name in entries if name not in folders], self.options["class_folder"]
        for name in folders:
            images, rest = self._inside(name)
            others += rest if images else [f"{name}/"]
            nested = next((each for each in images if each.count("/") > 1), "")
            splits = [each for each in folders if SPLIT.fullmatch(each.lower())] if nested else []
            if len(splits) > 1:
                raise DataError(
                    f"{self.url}: the directory has the splits {listed(splits)}, which are not read as one dataset. "
                    f"Name one of them."
                )
            if nested and not which:
                first, last = nested.split("/")[0], nested.split("/")[-2]
                raise DataError(
                    f"{self.url}: {nested} is an image in nested folders. Is its class {first} or {last}? Set "
                    "class_folder: first, or last."
                )
            files += [fs.join(self.url, each) for each in images]
            texts += [each.split("/")[-2 if which == "last" else 0] for each in images]
        # a folder of a class may be empty
        classes = sorted(distinct_names(texts if which == "last" else folders))
        if files:
            self.class_names = tuple(map(readable, classes))
        else:
            files = [fs.join(self.url, name) for name in entries if _has_suffix(name)]
            others = [name for name in others if not _has_suffix(name)]
        if files and others:
            where = " in folders of classes" if self.class_names else ""
            left = plural(len(others), "file or folder", "files or folders")
            expected = f"Expected images{where}, whose names end in {', '.join(IMAGE_SUFFIXES)}."
            warn_once(logger, f"{self.url}: {left} left out: {listed(others)}. {expected}")
        numbers = NameNumbers(classes)
        return files, [numbers[text] for text in texts]

    def _inside(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the images and the other files in a folder and its subfolders, relative to the store."""
        images, others = list[str](), list[str]()
        for name, is_folder, _ in fs.entries(fs.join(self.url, folder), self.storage_options):
            if is_ignored(name):
                continue
            path = f"{folder}/{name}"
            inside = self._inside(path) if is_folder else ([path], []) if _has_suffix(name) else ([], [path])
            images += inside[0]
            others += inside[1]
        return images, others


def is_ignored(name: str) -> bool:
    """Return whether a name in a folder is hidden, or belongs to a manifest or an operating system."""
    return name[0] == "." or name in (MANIFEST_DIR, *OF_SYSTEMS)


def entries_of(folder: str, storage_options: fs.Options) -> list[str]:
    """Return the names in a folder that are not `is_ignored`."""
    return [name for name, _, _ in fs.entries(folder, storage_options) if not is_ignored(name)]


def _has_suffix(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


class ImageListOptions(ImageFileOptions):
    """Options of a list of images."""

    classes: str | Many[str] = KeyField(default=[])
    """Class names, by label; or the URL of a text file with a line for each name, ``cat`` or ``0:cat``."""


@STORES.register("image-list")
class ImageListStore(_ImageStore):
    """Images in a list with lines ``name label``. Names are relative to the list.

    Labels are integers or class names. If ``classes`` is not set, class names are numbered in sorted order.
    """

    options_class = ImageListOptions

    def list_file(self) -> str:
        return self.url

    def list_images(self) -> tuple[list[str], list[int]]:
        self.class_names = read_classes(self.url, self.options["classes"], self.storage_options)
        text = decode_text(self.url, self.storage_options)
        entries = [(number, line.strip()) for number, line in enumerate(split_lines(text), 1) if line.strip()]
        files, texts = list[str](), list[str]()
        for number, line in entries:
            name, _, label = line.rpartition("\t" if "\t" in line else " ")
            if not name or label.lower().endswith(IMAGE_SUFFIXES):
                raise DataError(f"{self.url}, line {number}: the line is {line!r}, expected a name and a label.")
            files.append(name.strip() if "://" in name else fs.join(posixpath.dirname(self.url), name.strip()))
            texts.append(label)
        if texts and not self.class_names and not any(map(_is_integer, texts)):
            self.class_names = tuple(sorted(distinct_names(texts)))
        numbers = NameNumbers(self.class_names)
        return files, [self._label(label, numbers, line) for label, (line, _) in zip(texts, entries, strict=True)]

    def _label(self, text: str, numbers: NameNumbers, line: int) -> int:
        where, names = f"{self.url}, line {line}", self.class_names
        if (number := numbers[text]) >= 0:
            return number
        if not _is_integer(text):
            expected = f"one of the classes {listed(names)}" if names else "a name and a label"
            raise DataError(f"{where}: the label is {text!r}, expected {expected}.")
        label = int(text)
        if names and not 0 <= label < len(names):
            raise DataError(f"{where}: the label {label} has no class name. Expected 0 to {len(names) - 1}.")
        if not INT32.min <= label <= INT32.max:
            raise DataError(f"{where}: the label {label} does not fit in 32 bits.")
        return label


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
