"""Image files: a folder of images, a folder per class, or a list of names and labels."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import math
import posixpath
import struct
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.conf.base import Conf, raw_value
from singa_dask.conf.findings import Finding
from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size, as_list
from singa_dask.data.codecs.salvage import salvage_rows
from singa_dask.data.stores.blocks import BLOCK_BYTES
from singa_dask.data.stores.class_names import read_classes
from singa_dask.data.stores.range_store import find_manifest, name_of, plain
from singa_dask.data.stores.store import ADVICE, MANIFEST_DIR, SPLIT, STORES, Store, StoreOptions
from singa_dask.data.types import Arrays, Block, Field, FileSum
from singa_dask.errors import DataError, MissingPackageError, listed
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.io_threads import decode_threads, map_ahead
from singa_dask.fs.open_bytes import decode_text
from singa_dask.lazy import LazyModule
from singa_dask.redaction import readable
from singa_dask.shown import plural
from singa_dask.texts import NameNumbers, distinct_names, split_lines

# Decodes images to (channels, height, width) with Pillow (the extra ``singa-dask[images]``), most JPEG files with
# simplejpeg where that is installed, which is faster. Both give the same pixels.


if TYPE_CHECKING:
    import PIL
    from PIL import Image, ImageOps
else:
    PIL, Image, ImageOps = LazyModule("PIL"), LazyModule("PIL.Image"), LazyModule("PIL.ImageOps")
try:
    import simplejpeg
except ImportError:
    simplejpeg = None

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
HEAD_BYTES = 12
"""Number of bytes that `is_image` looks at."""
SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
JPEG = SIGNATURES[1]
SPACES = {"YCbCr": "RGB", "Gray": "GRAY"}
"""What simplejpeg decodes, by the colours of the file."""
MIN_JPEG = 8
"""Height and width from which the scale of a JPEG follows from its scaled size."""
MODES = {1: "L", 3: "RGB"}
WIDE_MODES = ("I", "F")
GREY_MODES = ("1", "L", "LA", "I;16", "I;16B", *WIDE_MODES)
ORIENTATION = 0x0112
"""Key of EXIF; from `TURNED` on, width and height are exchanged."""
TURNED = 5
MARGIN = 2
"""A JPEG that is to be scaled is decoded at this many times the new size at least, so that it hardly differs."""


class ImageOptions(Conf):
    """How images are decoded; see `decode_image`."""

    resize: Many[Size] | None = None
    """Height and width to which image files are scaled and cropped, for image-folder, image-list, image-parquet,
    parquet, tfrecord, webdataset and Caffe's encoded images in lmdb. A JPEG of at least four times the size is decoded
    at a half, a quarter or an eighth of its own, and scaled from there; values differ by about 0.4 of 255 on average.
    """
    channels: Literal[1, 3] = 3
    """Read image files as grey (1) or colour (3), for the same stores."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Refuse a size that is not height and width."""
        if len(as_list(raw_value(data, "resize", object, None))) not in (0, 2):
            yield ("resize",), "expected two numbers, height and width."


def is_image(data: bytes) -> bool:
    """Return whether bytes begin with the signature of an image."""
    is_bmp = data[:2] == b"BM" and data[6:10] == bytes(4)
    return data.startswith(SIGNATURES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP") or is_bmp


def image_size(data: bytes, where: str) -> tuple[int, int, int]:
    """Return channels (1 if the image is grey, else 3), height and width of an encoded image.

    Raises
    ------
    DataError
        The image is damaged, or Pillow is not installed.
    """
    with _named_errors(where), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        size = (image.height, image.width) if _orientation(image) < TURNED else image.size
        return 1 if image.mode in GREY_MODES else 3, *size


def _orientation(image: Image.Image) -> int:
    """Return how an image has to be turned or mirrored, 1 if not at all; this does not decode it.

    Metadata that is damaged says nothing of the image.
    """
    with contextlib.suppress(OSError, SyntaxError, ValueError, TypeError, ZeroDivisionError, struct.error):
        said = image.getexif().get(ORIENTATION) if "exif" in image.info else None
        if isinstance(said, int) and said in range(1, 9):
            return said
    return 1


@contextlib.contextmanager
def _named_errors(where: str) -> Iterator[None]:
    """Convert errors of Pillow to `DataError`s, also that it is not installed."""
    try:
        # the last ones say that an image has more pixels than PIL.Image.MAX_IMAGE_PIXELS allows
        damage = (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning)
    except ImportError:
        message = f"{where}: Pillow is needed to decode images. Install it: pip install 'singa-dask[images]'."
        raise MissingPackageError(message) from None
    try:
        yield
    except PIL.UnidentifiedImageError as error:
        raise DataError(f"{where}: not an image, or a damaged one. Expected one of {', '.join(FORMATS)}.") from error
    except DataError:
        raise
    except damage as error:
        raise DataError(f"{where}: not an image, or a damaged one: {error}.") from error


def decode_image(
    data: bytes | memoryview, where: str, resize: Sequence[int] | None = None, channels: int = 3
) -> npt.NDArray[np.uint8]:
    """Decode one image, as EXIF turns it; of several frames the first.

    Grey values of 16 bits are scaled to 8.

    Parameters
    ----------
    where : str
        URL and record, for errors.
    resize : (height, width), optional
        Scale to cover this size, then crop at the centre. A JPEG is decoded at a half, a quarter or an eighth of its
        size if that is at least `MARGIN` times this one, and scaled from there.
    channels : {3, 1}
        Convert to RGB or grey.

    Returns
    -------
    (channels, height, width) uint8

    Raises
    ------
    DataError
        The image is damaged, has values of 32 bits, or Pillow is not installed.
    """
    with _named_errors(where), _decode_jpeg(data, resize) or Image.open(io.BytesIO(data), formats=FORMATS) as image:
        if resize and image.format:
            # other formats than JPEG are decoded in full
            height, width = resize if _orientation(image) < TURNED else resize[::-1]
            image.draft(None, (MARGIN * width, MARGIN * height))
        return _pixels(image, where, resize, channels)


def _decode_jpeg(data: bytes | memoryview, resize: Sequence[int] | None) -> Image.Image | None:
    """Decode a plain JPEG by simplejpeg to the size and the pixels that Pillow would give; others are left to Pillow.

    Those are files with EXIF, which can turn them, and damaged ones, of which Pillow reads some.
    """
    if simplejpeg is None or bytes(data[: len(JPEG)]) != JPEG or b"Exif" in (data := bytes(data)):
        return None
    most = Image.MAX_IMAGE_PIXELS or math.inf
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
        if space not in SPACES or min(height, width) < MIN_JPEG or height * width > most:
            return None
        scale = min(height // (MARGIN * resize[0]), width // (MARGIN * resize[1])) if resize else 1
        # as `Image.draft` does
        scale = next((each for each in (8, 4, 2) if scale >= each), 1)
        least = {"min_height": -(-height // scale), "min_width": -(-width // scale)}
        pixels = simplejpeg.decode_jpeg(data, SPACES[space], fastdct=False, fastupsample=False, **least)
    except ValueError:
        return None
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def image_pixels(
    image: Image.Image, where: str, resize: Sequence[int] | None = None, channels: int = 3
) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image of Pillow; see `decode_image`."""
    with _named_errors(where):
        return _pixels(image, where, resize, channels)


def _pixels(image: Image.Image, where: str, resize: Sequence[int] | None, channels: int) -> npt.NDArray[np.uint8]:
    if channels not in MODES:
        raise DataError(f"{where}: {channels} channels, expected 3 (colour) or 1 (grey).")
    if _orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PNG"):
        # Pillow would cut off what is over 255; older versions open PNG files of 16 bits with 32
        values = np.asarray(image).astype(np.uint32)
        image = Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
    elif image.mode in WIDE_MODES:
        raise DataError(f"{where}: an image with values of 32 bits. Expected 8 or 16: their range is not known.")
    if image.has_transparency_data:
        image = _over_white(image, where)
    image = image.convert(MODES[channels])
    if resize:
        image = ImageOps.fit(image, (resize[1], resize[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1))


def _over_white(image: Image.Image, where: str) -> Image.Image:
    """Lay an image over white: what is in its transparent parts is not to be seen, and often black."""
    image = image.convert("RGBA")
    if image.getchannel("A").getextrema() != (255, 255):
        _warn_once_a_folder(posixpath.dirname(where) or "the records")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


@functools.cache
def _warn_once_a_folder(folder: str) -> None:
    LOG.warning("%s: has transparent images. They are laid over white.", folder)


LOG = logging.getLogger(__name__)
INT32 = np.iinfo(np.int32)
DECODED_TOGETHER = 8
"""Number of image files that a thread decodes before it takes others."""
OF_SYSTEMS = "__MACOSX", "Thumbs.db", "desktop.ini"
"""What operating systems leave beside images, apart from hidden files."""


class ImageFileOptions(ImageOptions, StoreOptions):
    """Options of image files. Without ``resize`` all images must have the same size."""


class _ImageStore(Store):
    """Image files, with or without labels. Small files are slow on any filesystem: consider converting them."""

    block = ImageFileOptions
    holds = "images"
    labels_apart = True

    def __init__(self, url: str, storage_options: fs.Options = None, **options: Any) -> None:
        super().__init__(url, storage_options, **options)
        self._files, self._labels = self.list_images()
        if not self._files:
            raise DataError(f"{url}: no images ({', '.join(IMAGE_SUFFIXES)}).")
        self._sums: dict[str, FileSum] = {}
        first = self._decode(self._files[0])
        self.schema = {"pixel": Field(first.dtype, first.shape)}
        if self._labels:
            self.schema["label"] = Field(np.dtype(np.int32))
        n, count = max(1, BLOCK_BYTES // first.size), len(self._files)
        self.blocks = tuple(
            Block(i, min(n, count - start), url, start, min(n, count - start) * first.size)
            for i, start in enumerate(range(0, count, n))
        )
        self._use_manifest()

    @abstractmethod
    def list_images(self) -> tuple[list[str], list[int]]:
        """Return URL and label of each image; an empty list of labels if there are none."""

    def _decode(self, url: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        data = self._read(url)
        try:
            return decode_image(data, url, self.options["resize"], self.options["channels"])
        except MissingPackageError:
            raise
        except DataError as error:
            raise DataError(f"{error} Remove the file. Training passes over such files with on_error: skip.") from error

    def _read(self, url: str) -> bytes:
        """Return the content of a file; compare it with the manifest, if there is one."""
        data = fs.read_bytes(url, storage_options=self.storage_options)
        known = self._sums.get(name_of(url, self.url)) if self._sums else None
        if known is not None and (len(data), crc := checksum_of(data)) != known[1:]:
            at = self._files.index(url) if url in self._files else None
            block = f", block {np.searchsorted(self.starts, at, 'right') - 1}" if at is not None else ""
            raise DataError(
                f"{url}{block}: {len(data)} bytes, crc32c {crc:08x}, expected {known.n_bytes} and {known.crc:08x}: "
                f"{ADVICE}"
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
                        f"{url}: an image of {image.shape}, expected {pixels.shape[1:]} like the first. "
                        "Give --resize HxW, or resize: [H, W] in a job."
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

    # -- the manifest: it has checksums of files, since an image can be read alone ------------------------

    def list_file(self) -> str:
        """Return the URL of the file that lists the images; empty if a directory does."""
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
        if manifest.options == plain(self.options):
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
    """Which folder is the class of an image in folders within folders: the first, ``cat`` of ``cat/tabby/1.png``, or
    the last, ``tabby``. Needed if there are such images."""


@STORES.register("image-folder")
class ImageFolderStore(_ImageStore):
    """Images by class: ``folder/<class>/<name>.png``; labels are the indices of the sorted class names.

    The names of the folders are the ``class_names``. Images in folders within these are refused unless ``class_folder``
    says which of their folders is the class. Without such folders, the images in the folder itself are records
    without labels. Hidden files are ignored; other files that are no images, and folders without images, are named in
    a warning. The URL of an image is a store of one record.
    """

    block = ImageFolderOptions

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return is_image(head)

    def list_images(self) -> tuple[list[str], list[int]]:
        if not fs.is_dir(self.url, self.storage_options):
            if not fs.exists(self.url, self.storage_options):
                raise DataError(f"{self.url}: no such file or directory.")
            n_bytes = min(HEAD_BYTES, fs.size(self.url, self.storage_options))
            if not is_image(fs.read_bytes(self.url, 0, n_bytes, self.storage_options)):
                raise DataError(f"{self.url}: neither a directory of images nor an image.")
            return [self.url], []
        entries = entries_of(self.url, self.storage_options)
        folders = [name for name in entries if fs.is_dir(fs.join(self.url, name), self.storage_options)]
        files, texts = list[str](), list[str]()
        others, which = [name for name in entries if name not in folders], self.options["class_folder"]
        for name in folders:
            found, rest = self._inside(name)
            others += rest if found else [f"{name}/"]
            nested = next((each for each in found if each.count("/") > 1), "")
            splits = [each for each in folders if SPLIT.fullmatch(each.lower())] if nested else []
            if len(splits) > 1:
                raise DataError(f"{self.url}: splits {listed(splits)}, which are not read as one. Name one of them.")
            if nested and not which:
                first, last = nested.split("/")[0], nested.split("/")[-2]
                raise DataError(
                    f"{self.url}: {nested}, an image in folders within folders. Is its class {first} or {last}? Set "
                    "class_folder: first, or last."
                )
            files += [fs.join(self.url, each) for each in found]
            texts += [each.split("/")[-2 if which == "last" else 0] for each in found]
        # a class may have no images yet
        classes = sorted(distinct_names(texts if which == "last" else folders))
        if files:
            self.class_names = tuple(map(readable, classes))
        else:
            files = [fs.join(self.url, name) for name in entries if _has_suffix(name)]
            others = [name for name in others if not _has_suffix(name)]
        if files and others:
            where = " in folders of classes" if self.class_names else ""
            left = plural(len(others), "file or folder", "files or folders")
            LOG.warning("%s: left out: %s: %s. Expected images%s, whose names end in %s.",
                        self.url, left, listed(others), where, ", ".join(IMAGE_SUFFIXES))  # fmt: skip
        numbers = NameNumbers(classes)
        return files, [numbers[text] for text in texts]

    def _inside(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the images in a folder and those within it, and other files there, by path from the store on."""
        found, others = list[str](), list[str]()
        for name, is_folder, _ in fs.entries(fs.join(self.url, folder), self.storage_options):
            if is_theirs(name):
                continue
            path = f"{folder}/{name}"
            inside = self._inside(path) if is_folder else ([path], []) if _has_suffix(name) else ([], [path])
            found += inside[0]
            others += inside[1]
        return found, others


def is_theirs(name: str) -> bool:
    """Return whether a name in a folder is of none that somebody has put there."""
    return name[0] == "." or name in (MANIFEST_DIR, *OF_SYSTEMS)


def entries_of(folder: str, storage_options: fs.Options) -> list[str]:
    """Return the names in a folder but for those that nobody has put there."""
    return [name for name, _, _ in fs.entries(folder, storage_options) if not is_theirs(name)]


def _has_suffix(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


class ImageListOptions(ImageFileOptions):
    """Options of a list of images."""

    classes: str | Many[str] = KeyField(default=[])
    """Names of the classes, by label; or the URL of a text file with a name in each line, ``cat`` or ``0:cat``."""


@STORES.register("image-list")
class ImageListStore(_ImageStore):
    """Images of a list: lines of ``name label``, a blank or a tab between them; names relative to the directory of it.

    Labels are integers, or names of classes: all of them, sorted, if ``classes`` are not given.
    """

    block = ImageListOptions

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
                raise DataError(f"{self.url}, line {number}: {line!r}, expected a name and a label.")
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
            raise DataError(f"{where}: the label {text!r}, expected {expected}.")
        label = int(text)
        if names and not 0 <= label < len(names):
            raise DataError(f"{where}: the label {label} has no class name. Expected 0 to {len(names) - 1}.")
        if not INT32.min <= label <= INT32.max:
            raise DataError(f"{where}: the label {label} does not fit in 32 bits.")
        return label


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
