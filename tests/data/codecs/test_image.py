"""Pictures: every format, values of 16 bits, EXIF, and what is left out of folders and tars."""

from __future__ import annotations

import io
import logging
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from singa_dask.data.stores import open_store
from singa_dask.data.stores.images import image_decoding
from singa_dask.data.stores.images.image_decoding import FORMATS, IMAGE_SUFFIXES, decode_image, image_size, is_image
from singa_dask.errors import DataError

GREY = np.random.default_rng(0).integers(0, 256, (5, 7)).astype(np.uint8)
LOSSLESS: dict[str, dict[str, Any]] = {
    name: {"lossless": True} if name == "WEBP" else {} for name in FORMATS if name != "JPEG"
}
# what turns an upright picture into the one that is stored, by the orientation that EXIF says
STORED = {
    2: np.fliplr,
    3: lambda values: np.rot90(values, 2),
    4: np.flipud,
    5: np.transpose,
    6: np.rot90,
    7: lambda values: np.rot90(values.T, 2),
    8: lambda values: np.rot90(values, 3),
}


def encoded(values: np.ndarray[Any, Any], kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(values)).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", LOSSLESS)
def test_each_format_is_read(kind: str) -> None:
    data = encoded(GREY, kind, **LOSSLESS[kind])
    assert is_image(data)
    assert image_size(data, "x")[1:] == GREY.shape
    np.testing.assert_array_equal(decode_image(data, "x", channels=1)[0], GREY)


def test_the_first_frame_of_several_is_read() -> None:
    frames = [Image.fromarray(GREY), Image.fromarray(255 - GREY)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(decode_image(file.getvalue(), "x", channels=1)[0], GREY)


@pytest.mark.parametrize("text", [b"BMP,a,b,c\n1,2,3,4\n", b"MMMM;1;2\n", b"GIF,a\n", b"RIFF,a,b\n"])
def test_texts_are_no_images(text: bytes) -> None:
    assert not is_image(text)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_grey_values_of_16_bits_are_scaled(kind: str) -> None:
    values = np.linspace(0, 65535, 512).astype(np.uint16).reshape(16, 32)
    data = encoded(values, kind)
    assert image_size(data, "x") == (1, 16, 32)
    np.testing.assert_array_equal(decode_image(data, "x", channels=1)[0], np.round(values / 257.0))
    assert decode_image(data, "x").shape == (3, 16, 32)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_values_of_32_bits_are_refused(dtype: str) -> None:
    with pytest.raises(
        DataError, match=r"^x: the image has values of 32 bits, whose range is unknown. Store them with 8 or 16"
    ):
        decode_image(encoded(GREY.astype(dtype), "TIFF"), "x")


@pytest.mark.parametrize("orientation", [1, *STORED])
def test_exif_turns_pictures(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = STORED.get(orientation, np.asarray)(GREY)
    data = encoded(stored, exif=exif)
    np.testing.assert_array_equal(decode_image(data, "x", channels=1)[0], GREY)
    assert image_size(data, "x") == (1, *GREY.shape)


ALPHA = GREY // 2


def drawn(mode: str, alpha: np.ndarray[Any, Any]) -> bytes:
    """Return a picture whose shape is in its alpha channel alone: all colours are black."""
    file, black = io.BytesIO(), Image.new("RGB" if mode == "RGBA" else "L", alpha.shape[::-1])
    black.putalpha(Image.fromarray(alpha))
    black.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pictures_are_laid_over_white(mode: str, channels: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for name in ("d/a.png", "d/b.png"):
            pixels = decode_image(drawn(mode, ALPHA), name, channels=channels)
    for channel in pixels:
        np.testing.assert_array_equal(channel, 255 - ALPHA)
    assert [record.message for record in caplog.records] == [
        "d: some images are transparent. They are drawn on a white background.",
    ]


def test_an_alpha_channel_that_hides_nothing_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    colours = np.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    opaque = np.concatenate([colours, np.full((5, 7, 1), 255, np.uint8)], axis=2)
    np.testing.assert_array_equal(decode_image(encoded(opaque), "x"), colours.transpose(2, 0, 1))
    assert not caplog.records


def test_a_colour_of_a_palette_is_transparent() -> None:
    picture, file = Image.fromarray(GREY % 2).convert("P"), io.BytesIO()
    picture.save(file, "GIF", transparency=0)
    pixels = decode_image(file.getvalue(), "x", channels=1)[0]
    assert set(pixels[GREY % 2 == 0]) == {255}
    assert set(pixels[GREY % 2 == 1]) == {1}


@pytest.mark.parametrize("orientation", [0, 9, -1, float("nan"), 6.5, "6", b"\x06"])
def test_an_orientation_that_says_nothing_is_ignored(orientation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x0112] = 1
    data = encoded(GREY, exif=exif)
    monkeypatch.setattr(Image.Exif, "get", lambda *args: orientation)
    np.testing.assert_array_equal(decode_image(data, "x", channels=1)[0], GREY)
    assert image_size(data, "x")[1:] == GREY.shape


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize(("size", "is_reduced"), [((32, 24), True), ((100, 75), False)])
def test_a_jpeg_that_is_shrunk_much_is_decoded_at_a_smaller_size(
    size: tuple[int, int], is_reduced: bool, orientation: int
) -> None:
    random = np.random.default_rng(0)
    colours = Image.fromarray(random.integers(0, 256, (16, 12, 3), np.uint8)).resize((180, 240))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.asarray(colours) if orientation == 1 else np.rot90(np.asarray(colours))
    data = encoded(stored, "JPEG", quality=90, exif=exif)
    with Image.open(io.BytesIO(data)) as image:
        whole = ImageOps.exif_transpose(image).convert("RGB")
    expected = np.asarray(whole.resize(size[::-1], Image.Resampling.BILINEAR)).transpose(2, 0, 1).astype(int)
    difference = np.abs(decode_image(data, "x", resize=size) - expected)
    assert (difference.max() > 0) == is_reduced
    assert difference.mean() < 0.6
    np.testing.assert_array_equal(decode_image(data, "x"), np.asarray(whole).transpose(2, 0, 1))


def test_the_first_of_several_damaged_files_is_named(tmp_path: Path) -> None:
    for number in range(40):
        data = encoded(np.full((4, 4), number, np.uint8))
        (tmp_path / f"{number:02d}.png").write_bytes(data[: 50 if number in (13, 14, 30) else None])
    with open_store(str(tmp_path), "image-folder", channels=1) as store:
        with pytest.raises(DataError, match=r"13\.png: not an image, or .*\. Remove the file\. .* on_error: skip\.$"):
            store.read_block(0)
        assert sorted(store.salvage(0)[1]) == [13, 14, 30]
        rows = np.array([0, 12, 39, 15])
        np.testing.assert_array_equal(store.read_rows(0, rows)["pixel"][:, 0, 0, 0], rows)


def test_what_is_no_image_is_named_without_an_object() -> None:
    with pytest.raises(DataError, match=r"^x: not an image, or a damaged one\. Expected one of PNG, JPEG") as found:
        decode_image(b"what", "x")
    assert "object at" not in str(found.value)


def test_a_folder_names_what_it_leaves_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = ["cat/1.png", "cat/2.webp", "dog/1.BMP", "dog/._1.png", "__MACOSX/1.png", ".hidden/1.png"]
    for name in [*names, "dog/notes.txt", "empty/notes.txt", "README.md", "Thumbs.db", "cat/3.heic"]:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        kind = {".webp": "WEBP", ".bmp": "BMP"}.get(file.suffix.lower(), "PNG")
        file.write_bytes(encoded(GREY, kind) if file.suffix.lower() in IMAGE_SUFFIXES else b"no picture")
    with caplog.at_level(logging.WARNING), open_store(str(tmp_path), "image-folder") as store:
        assert (store.count, store.class_names) == (3, ("cat", "dog", "empty"))
        assert store.read_labels(0).tolist() == [0, 0, 1]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert ": 4 files or folders left out: README.md, cat/3.heic, dog/notes.txt, empty/. Expected images in" in warning


def test_folders_within_folders_of_classes(tmp_path: Path) -> None:
    names = ["cat/tabby/1.png", "cat/2.png", "dog/pug/young/1.png", "dog/tabby/1.png"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encoded(GREY, "PNG"))
    said = r"cat/tabby/1\.png is an image in nested folders\. Is its class cat or tabby\? Set class_folder"
    with pytest.raises(DataError, match=said):
        open_store(str(tmp_path), "image-folder")
    for which, classes in (("first", ["cat", "cat", "dog", "dog"]), ("last", ["tabby", "cat", "young", "tabby"])):
        with open_store(str(tmp_path), "image-folder", class_folder=which) as store:
            files = [file.removeprefix(f"{tmp_path}/") for file in store.record_files(0, store.count)]
            found = dict(zip(files, (store.class_names[label] for label in store.read_labels(0)), strict=True))
        assert found == dict(zip(names, classes, strict=True))
    (tmp_path / "cat").rename(tmp_path / "train")
    (tmp_path / "dog").rename(tmp_path / "test")
    with pytest.raises(DataError, match="the directory has the splits test, train, which are not read as one dataset"):
        open_store(str(tmp_path), "image-folder", class_folder="last")


def test_a_folder_of_images_alone_leaves_nothing_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("1.png", "2.tif"):
        (tmp_path / name).write_bytes(encoded(GREY, "TIFF" if name[0] == "2" else "PNG"))
    with open_store(str(tmp_path), "image-folder") as store:
        assert (store.count, store.class_names) == (2, ())
    assert not caplog.records


def test_a_tar_says_what_it_leaves_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for number in range(6):
            kind = ("png", "webp", "jp2")[number % 3]
            picture = encoded(GREY, kind) if kind != "jp2" else b"..."
            for suffix, data in ((kind, picture), ("cls", b"1"), ("json", b"{}")):
                info = tarfile.TarInfo(f"{number}.{suffix}")
                info.size = len(data)
                if kind != "jp2" or suffix == "jp2":
                    tar.addfile(info, io.BytesIO(data))
    for _ in range(2):
        with caplog.at_level(logging.WARNING), open_store(str(tmp_path / "x.tar"), "webdataset") as store:
            assert store.count == 4
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "x.tar: some files are left out: 2 files. Its files end in: .json, .jp2." in warning


@pytest.mark.pairs
@pytest.mark.parametrize("resize", [None, (8, 8), (16, 9), (60, 100)], ids=str)
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 30}], ids=str)
@pytest.mark.parametrize("shape", [(64, 64, 3), (101, 67, 3), (67, 101, 1), (5, 7, 3), (130, 64, 4)], ids=str)
def test_simplejpeg_gives_the_pixels_of_pillow(
    shape: tuple[int, ...],
    options: dict[str, Any],
    resize: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bands = [Image.fromarray(band) for band in np.random.default_rng(1).integers(0, 256, (4, *shape[:2]), np.uint8)]
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[shape[2]]
    file = io.BytesIO()
    Image.merge(mode, bands[: len(mode)]).save(file, "JPEG", **options)
    data = file.getvalue()
    is_left_to_pillow = mode == "CMYK" or min(shape[:2]) < 8
    assert (image_decoding._decode_jpeg(data, resize) is None) == is_left_to_pillow
    fast = [decode_image(data, "x", resize, channels) for channels in (1, 3)]
    monkeypatch.setattr(image_decoding, "simplejpeg", None)
    for channels, pixels in zip((1, 3), fast, strict=True):
        np.testing.assert_array_equal(pixels, decode_image(data, "x", resize, channels))


def test_a_damaged_jpeg_is_left_to_pillow() -> None:
    data = encoded(np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8), "JPEG")
    with pytest.raises(DataError, match=r"^x: not an image, or a damaged one"):
        decode_image(data[: len(data) // 2], "x")
    # bytes that follow the picture are no damage
    np.testing.assert_array_equal(decode_image(data + b"more", "x"), decode_image(data, "x"))


def test_a_jpeg_of_too_many_pixels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(np.zeros((64, 64), np.uint8), "JPEG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match=r"^x: not an image, or a damaged one: .* exceeds limit of"):
        decode_image(data, "x")
