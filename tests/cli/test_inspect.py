"""``data inspect``: fields, ranges, classes, layout, trouble, pictures; and the verbs of ``data`` on every format."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from singa_dask.cli import inspection
from singa_dask.cli import picture_sheet as sheet
from singa_dask.cli.inspection import inspect_store
from singa_dask.cli.inspection_text import inspection_lines
from singa_dask.data.blocks import rows_per_block
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.stores.images import image_decoding
from singa_dask.data.stores.tables.part_store import PartStore
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.types import Arrays, TableColumn
from singa_dask.lazy import LazyModule
from singa_dask.survey import statistics
from tests.cli.conftest import DIGITS, Call, Made
from tests.contracts.foreign import NAMES, write_foreign
from tests.contracts.records import SUFFIX, floats, pixels, written


def told(call: Call, *args: Any) -> dict[str, Any]:
    """Inspect as JSON."""
    result = call("data", "inspect", *args, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def any_store(folder: Path, backend: str) -> str:
    """Write a few records in a format, and return where they are."""
    records = pixels(40, (3, 32, 32))
    records["label"] = np.arange(40, dtype=np.int32) // 20
    if backend in SUFFIX:
        return written(folder, backend, records)
    if backend in NAMES:
        if backend == "idx":
            records["pixel"] = records["pixel"][:, 0]
        elif backend == "tfrecord":
            records["pixel"] = records["pixel"].reshape(40, -1)
        return write_foreign(folder, backend, records)
    if backend == "shards":
        written(folder, "arrow", records)
        return str(folder / "*.arrow")
    path = folder / f"records.{backend}"
    path.write_text("a line\nanother one\n" * 20)
    return str(path)


OTHERS = {"lines", "shards"}


@pytest.mark.parametrize("backend", sorted({*SUFFIX, *NAMES, *OTHERS} & set(STORES.names())))
def test_all_verbs_on_every_format(call: Call, backend: str, tmp_path: Path, made: Made) -> None:
    url = any_store(tmp_path / "data", backend)
    made()
    options = () if backend == "shards" else ("--backend", backend)
    assert told(call, url, *options)["records_seen"] == 40
    for verb, more in (("head", ()), ("verify", ()), ("bench", ("--batch", 8, "--rounds", 1))):
        result = call("data", verb, url, *options, *more)
        assert result.exit_code == 0, result.output
        assert result.stdout
    assert made() == set()


def test_facts_of_digits(call: Call) -> None:
    found = told(call, DIGITS)
    labels = [each["count"] for each in found["class_counts"]]
    assert (sum(labels), len(labels), found["labels_seen"]) == (2000, 10, 2000)
    with open_store(str(DIGITS)) as store:
        values = np.concatenate([store.read_block(block.id)["pixel"] for block in store.blocks])
    pixel = found["fields"][0]
    assert (pixel["name"], pixel["dtype"], pixel["shape"]) == ("pixel", "uint8", [28, 28])
    assert (pixel["min"], pixel["max"], pixel["nan"]) == (0, 255, 0)
    assert pixel["mean"] == pytest.approx(values.mean())
    assert found["layout"]["order"] == "NHW"
    assert found["trouble"] == []


def test_at_sixty_columns() -> None:
    with open_store(str(DIGITS)) as store:
        lines = inspection_lines(inspect_store(store), 60)
    assert max(map(len, lines)) <= 60
    assert any(line.startswith("    1      225  11.2%  ███") for line in lines)


def test_a_sample_is_stated(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = written(tmp_path, "arrow", pixels(3000, (1000,)))
    monkeypatch.setattr(inspection, "SAMPLE_BYTES", 1 << 20)
    assert rows_per_block(1004) == 1024
    text = call("data", "inspect", url).stdout
    assert "looked at    1024 of 3000 records, in blocks evenly spaced; --all for all" in text
    assert "10 classes of 1024 records looked at" in text
    assert told(call, url, "--all")["records_seen"] == 3000


def test_labels_of_pictures_are_counted_without_reading_these(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = any_store(tmp_path, "image-folder")
    (tmp_path / "classes" / "empty").mkdir()
    monkeypatch.setattr(inspection, "SAMPLE_BYTES", 1)
    monkeypatch.setattr("singa_dask.data.stores.images.image.BLOCK_BYTES", 3072 * 10)
    found = told(call, url)
    assert (found["files"], found["records_seen"], found["labels_seen"]) == (40, 10, 40)
    assert [(each["name"], each["count"]) for each in found["class_counts"]] == [
        ("class-0", 20),
        ("class-1", 20),
        ("empty", 0),
    ]
    assert found["trouble"] == ["no record of class 2 (empty)"]


def trouble(call: Call, folder: Path, **records: Any) -> list[str]:
    arrays: Arrays = {name: np.asarray(values) for name, values in records.items()}
    found: list[str] = told(call, written(folder, "npz", arrays))["trouble"]
    return found


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([1, 2, 3, 1], ["labels from 1 to 3. Expected classes from 0 on: subtract 1, or have 4 outputs"]),
        ([-1, 0, 1, 1], ["labels from -1 on. Expected classes from 0 on"]),
        ([0, 1, 3, 3], ["no record of class 2"]),
        ([0, 1, 70000, 3], ["4 different labels from 0 to 70000. Expected classes from 0 on, without gaps"]),
        ([4, 4, 4, 4], ["all labels are 4"]),
        ([0, 1, 2, 3], []),
    ],
)
def test_labels_that_make_trouble(call: Call, tmp_path: Path, labels: list[int], said: list[str]) -> None:
    data = floats(4)["data"]
    assert trouble(call, tmp_path, data=data, label=np.array(labels, np.int32)) == said


def test_values_that_make_trouble(call: Call, tmp_path: Path) -> None:
    data = floats(50, (4,))["data"]
    data[:, 1] = 7
    data[:, 2] *= 1e5
    assert trouble(call, tmp_path, data=data)[0] == "data: constant: value 1"
    (text,) = trouble(call, tmp_path, data=data)[1:]
    assert text.startswith("data: very different scales: standard deviation ")
    assert text.endswith(" of value 2. Scale features: standardise: true in store_conf")
    data = floats(50, (4,))["data"]
    data[3, 0], data[4, 0], data[:, 3] = np.nan, np.inf, np.nan
    found = trouble(call, tmp_path, data=data)
    assert found == ["data: 51 values are NaN", "data: 1 value is infinite", "data: no numbers in value 3"]


def test_equal_records(call: Call, tmp_path: Path) -> None:
    data = floats(50, (4,))["data"]
    data[[10, 20]] = data[0]
    labels = np.zeros(50, np.int32)
    labels[20:] = 1
    said = ["2 of 50 records compared are equal to an earlier one, 1 of them with another label"]
    assert trouble(call, tmp_path, data=data, label=labels) == said


def test_of_many_records_the_first_are_compared(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_COMPARED", 20)
    records = floats(40)
    records["data"][19] = records["data"][0]
    records["data"][20] = records["data"][1]
    said = "1 of 20 records compared are equal to an earlier one, 1 of them with another label"
    assert told(call, written(tmp_path, "arrow", records, block_bytes=200))["trouble"] == [said]


def test_blocks_that_cannot_be_read(call: Call, tmp_path: Path) -> None:
    url = written(tmp_path, "arrow", pixels(600, (4, 5)), block_bytes=256 * 24)
    call("data", "verify", url, "--write-manifest")
    data = bytearray(Path(url).read_bytes())
    data[data.index(pixels(600, (4, 5))["pixel"][300].tobytes())] ^= 1
    Path(url).write_bytes(data)
    found = told(call, url)
    assert found["records_seen"] == 344
    assert found["trouble"][0].startswith(f"cannot be read: {url}, block 1 (")


def test_a_manifest_that_does_not_fit(call: Call, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = written(tmp_path, "kvfile", pixels(600))
    call("data", "verify", url, "--write-manifest")
    written(tmp_path, "kvfile", pixels(500))
    with caplog.at_level(logging.ERROR):
        assert told(call, url)["manifest"] == "does not fit the data; see data verify"


@pytest.mark.parametrize(
    ("shape", "order", "said"),
    [
        ((3, 32, 32), "NCHW", "3 x 32 x 32: channels, height, width (NCHW)"),
        (
            (32, 30, 3),
            "NHWC",
            "32 x 30 x 3: height, width, channels (NHWC). For shape: [3, 32, 30] in a job set layout: NHWC, or store "
            "array.transpose(0, 3, 1, 2)",
        ),
        ((784,), "NHW", "784 values in a row: perhaps pictures of 28 x 28"),
        ((3072,), "NCHW", "3072 values in a row: perhaps pictures of 3 x 32 x 32"),
    ],
)
def test_layouts(call: Call, tmp_path: Path, shape: tuple[int, ...], order: str, said: str) -> None:
    records = pixels(30, shape)
    url = written(tmp_path, "arrow", records)
    result = call("data", "inspect", url, "--json", "--png", tmp_path / "sheet.png")
    assert result.exit_code == 0, result.output
    layout = json.loads(result.stdout)["layout"]
    assert (layout["order"], layout["text"]) == (order, said)
    assert ("(a guess; --shape says otherwise)" in result.stderr) == (len(shape) == 1)
    with Image.open(tmp_path / "sheet.png") as image:
        assert image.width > 12 * 32


def test_a_table_has_no_layout_and_no_pictures(call: Call, tmp_path: Path) -> None:
    url = written(tmp_path, "csv", floats(20))
    assert told(call, url)["layout"] is None
    result = call("data", "inspect", url, "--png", tmp_path / "sheet.png")
    assert result.exit_code == 1
    assert "no pictures: data (5,), label (). Expected (channels, height, width)" in result.stderr


def test_a_shape_for_values_in_a_row(call: Call, tmp_path: Path) -> None:
    url = written(tmp_path, "arrow", floats(20, (12,), labels=False))
    result = call("data", "inspect", url, "--shape", "1,3,4", "--png", tmp_path / "sheet.png")
    assert result.exit_code == 0, result.output
    assert result.stderr.endswith("sheet.png: 20 pictures of 1 x 3 x 4\n")
    result = call("data", "inspect", url, "--shape", "5,5")
    assert result.exit_code == 1
    assert result.stderr == f"{url}: records of 12 values. Expected 25, as --shape says.\n"


def test_the_rows_of_a_sheet() -> None:
    with open_store(str(DIGITS)) as store:
        pictures = sheet.Pictures(store)
        found = inspect_store(store, pictures=pictures)
    with Image.open(io.BytesIO(sheet.draw_sheet(pictures, found))) as image:
        values = np.asarray(image)
    assert [text for text, _ in sheet._rows(pictures, found)][:2] == ["0 (200)", "1 (225)"]
    first = pictures.by_class[0][0][..., 0]
    # twice as large as it is
    top = sheet.FONT + 3 * sheet.GAP
    row = values[top : top + 56, :, 0]
    places = [x for x in range(row.shape[1] - 56) if (row[::2, x : x + 56 : 2] == first).all()]
    assert places


def test_without_pillow(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheet, "Image", None)
    result = call("data", "inspect", DIGITS, "--png", "x.png")
    assert result.exit_code == 2
    assert result.stderr.endswith("Install it: pip install 'singa-dask[images]'.\n")


@pytest.mark.parametrize(("package", "url"), [("s3fs", "s3://a/x.npz"), ("gcsfs", "gs://a/x.npz"), ("PIL", "pictures")])
def test_a_package_that_is_not_there(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, url: str
) -> None:
    for name in "ab":
        (tmp_path / "pictures" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "pictures" / name / "0.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(image_decoding, "Image", LazyModule("not_installed"))
    result = call("data", "inspect", url)
    assert result.exit_code == 2
    assert url in result.stderr and "nstall" in result.stderr


def test_columns_of_a_table(tmp_path: Path) -> None:
    records = floats(20, (2,))
    records["data"][:, 0] = np.arange(20) % 2 * 4 - 1
    with open_store(written(tmp_path, "npz", records)) as store:
        store.table_columns = (
            TableColumn("petal", "double", "data", 0, missing="mean"),
            TableColumn("colour", "string", "data", 1, ("red", "green")),
            TableColumn("day", "date"),
        )
        found = inspect_store(store)
    lines = inspection_lines(found, None)
    assert "column  kind    read as  mean  std  missing  categories" in lines
    assert "petal   double  data 0      1    2  mean" in lines
    assert "colour  string  data 1                       red, green" in lines
    petal, colour, _ = found["columns"]
    assert (petal["name"], petal["mean"], petal["std"]) == ("petal", 1, 2)
    assert "mean" not in colour


@pytest.fixture
def irises(tmp_path: Path) -> Path:
    """Write a table of columns of several kinds."""
    path = tmp_path / "irises.csv"
    rows = [f"{i}.5,{i * i},{'red' if i % 3 else 'blue'},2024-01-01,{'ab'[i % 2]}\n" for i in range(20)]
    path.write_text("sepal,petal,colour,day,species\n" + "".join(rows))
    return path


def test_a_table_that_is_none_of_ours(call: Call, irises: Path) -> None:
    found = told(call, irises)
    assert found["format"] == "table"
    assert [(each["name"], each["kind"], each["field"]) for each in found["columns"]] == [
        ("sepal", "number", "data"),
        ("petal", "number", "data"),
        ("colour", "string", ""),
        ("day", "date", ""),
        ("species", "string", ""),
    ]
    assert found["class_counts"] == []


def test_named_columns(call: Call, irises: Path) -> None:
    options = ("--label", "species", "--features", "petal,colour", "--option", "categories={colour: []}")
    found = told(call, irises, *options)
    assert [(each["name"], each["count"]) for each in found["class_counts"]] == [("a", 10), ("b", 10)]
    (colour,) = (each for each in found["columns"] if each["name"] == "colour")
    assert colour["categories"] == ["blue", "red"]
    for verb, more in (("head", ()), ("verify", ()), ("bench", ("--batch", 8, "--rounds", 1))):
        result = call("data", verb, irises, *options, *more)
        assert result.exit_code == 0, result.output
    several = told(call, irises, "--label", "species,colour", "--features", "petal")["class_counts"]
    assert [(each["column"], each["name"], each["count"]) for each in several] == [
        ("species", "a", 10), ("species", "b", 10), ("colour", "blue", 7), ("colour", "red", 13)
    ]  # fmt: skip
    result = call("data", "head", irises, "--label", "specis")
    assert result.exit_code == 1
    assert "specis" in result.stderr


# -- options ----------------------------------------------------------------------------------------------------------


def test_options_of_the_format_and_of_the_file_system(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1;2;3;4\n5;6;7;8\n")
    options = ("--separator", ";", "--no-label", "--no-header", "--shape", "2,2", "--storage-option", "auto_mkdir=true")
    assert told(call, path, *options)["fields"][0]["shape"] == [2, 2]
    for verb, more in (("head", ()), ("verify", ()), ("bench", ("--batch", 2, "--rounds", 1))):
        assert call("data", verb, path, *options, *more).exit_code == 0
    result = call("data", "verify", path, *options, "--option", "block_bytes=8", "--write-manifest")
    assert "2 records in 2 blocks" in result.stdout


def test_advice_on_an_encoding_and_quotes_works_as_printed(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("a,b,note\n1,2,süd\n3,4,nord\n".encode("latin-1"))
    for verb, code in (("head", 1), ("inspect", 0), ("verify", 1)):
        refused = call("data", verb, path)
        assert refused.exit_code == code and "Or give --encoding, such as latin-1 or cp1252" in refused.output
        result = call("data", verb, path, "--encoding", "latin-1")
        assert result.exit_code == 0 and "--encoding" not in result.output
    path.write_text('a,b\n1,"x\n2,y\n3,z"\n4,w\n')
    assert "Pass --no-quotes if quotes are characters here" in call("data", "inspect", path).output
    assert "--no-quotes" not in call("data", "inspect", path, "--no-quotes").output


CLAIMS = """\
claim;date;amount;share;member;age;zip;note;region
C01;2024-01-03;"$1,234.50";5 %;yes;34;01234;hit a parked car;north
C02;2024-02-04;N/A;12.5 %;no;N/A;02345;hail on the roof of the house;south
C03;2023-12-30;$12.00;7 %;yes;51;01234;the water pipe burst in winter;north
"""


def test_a_raw_table_is_shown_and_described(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "claims.csv"
    head, *rows = CLAIMS.splitlines()
    path.write_text("\n".join([head, *rows * 4]))
    frame = pd.read_csv(path, sep=";", keep_default_na=False, dtype=str)
    frame.to_parquet(tmp_path / "claims.parquet")
    frame.to_json(tmp_path / "claims.jsonl", orient="records", lines=True)
    frame.to_excel(tmp_path / "claims.xlsx", index=False)
    (tmp_path / "parts").mkdir()
    frame.to_parquet(tmp_path / "parts" / "0.parquet")
    for name in ("claims.csv", "claims.parquet", "claims.jsonl", "claims.xlsx", "parts"):
        result = call("data", "head", tmp_path / name, "-n", 3)
        assert result.exit_code == 0, result.output
        shown = [re.split("  +", line) for line in result.stdout.splitlines()]
        assert shown == [[*frame.columns], *frame.head(3).to_numpy().tolist()]
    found = told(call, path)
    assert found["records"] == 12
    survey = {each.pop("name"): each for each in found["survey"]}
    kinds = ["category", "date", "money", "percent", "boolean", "number", "number", "text", "category"]
    assert [each["kind"] for each in survey.values()] == kinds
    assert survey["amount"] == {"kind": "money", "n_missing": 4, "low": 12.0, "high": 1234.5}
    assert survey["age"] == {"kind": "number", "n_missing": 4, "low": 34.0, "high": 51.0}
    assert (survey["date"]["low"], survey["date"]["high"]) == ("2023-12-30", "2024-02-04")
    assert survey["region"]["examples"] == ["north", "south"]
    assert any(text.startswith("zip: 12 numbers with leading zeros") for text in found["trouble"])
    assert any("column 'age': no value" in text and "Pass --option missing=mean" in text for text in found["trouble"])
    assert "2023-12-30 to 2024-02-04" in call("data", "inspect", path).stdout
    refused = call("data", "inspect", path, "--decimal", ",")
    assert refused.exit_code == 2 and "which --decimal , does not fit" in refused.stderr


def test_size_and_channels_of_pictures(call: Call, tmp_path: Path) -> None:
    url = any_store(tmp_path, "image-folder")
    assert told(call, url, "--resize", "8x9", "--channels", 1)["fields"][0]["shape"] == [1, 8, 9]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--separator", ";"], 2, "take no option 'separator'. Known: label."),
        (["--backend", "csv", "--option", "separater=x"], 2, "Did you mean 'separator'?"),
        (["--option", "x"], 2, "--option 'x': expected KEY=VALUE."),
        (["--resize", "8"], 2, "--resize '8': expected numbers, e.g. 32x32."),
        (["--storage-option", "x=[1"], 2, "--storage-option x=[1"),
    ],
)
def test_mistaken_options(call: Call, options: list[str], code: int, said: str, tmp_path: Path) -> None:
    result = call("data", "head", DIGITS, *options)
    assert said in result.stderr
    assert result.exit_code == code


def test_convert_takes_the_same_options(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;2\n5;6\n")
    options = ("--option", "separator=;", "--option", "has_label=false", "--storage-option", "auto_mkdir=true")
    result = call("convert", "csv", tmp_path / "a.csv", tmp_path / "a.arrow", *options)
    assert result.exit_code == 0, result.output
    assert told(call, tmp_path / "a.arrow")["fields"][0]["shape"] == [2]


def test_convert_takes_named_columns(call: Call, irises: Path, tmp_path: Path) -> None:
    result = call("convert", "csv", irises, tmp_path / "a.parquet", "--label", "species", "--features", "petal")
    assert result.exit_code == 0, result.output
    found = told(call, tmp_path / "a.parquet")
    assert [(each["name"], each["count"]) for each in found["class_counts"]] == [("a", 10), ("b", 10)]


def test_texts_of_a_table_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One column has texts of many words, another amounts of money."""
    pd.DataFrame({"a": range(400), "said": ["so it is, and so it goes on"] * 400, "price": ["$1,200.00"] * 400}).to_csv(
        tmp_path / "x.csv"
    )
    read, texts = list[int](), PartStore.read_texts

    def count(store: PartStore, block: int, names: Sequence[str]) -> Any:
        read.append(block)
        return texts(store, block, names)

    monkeypatch.setattr(PartStore, "read_texts", count)
    with TableStore(str(tmp_path / "x.csv"), features=["a"], block_bytes=2000) as store:
        facts = inspect_store(store)
        assert read == [block.id for block in store.blocks]
    assert "said" in facts["texts"]
    assert any("price" in each for each in facts["trouble"])
