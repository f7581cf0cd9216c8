"""``data``: what a store holds, its first records, whether all can be read, and how fast."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from singa_dask import fs
from singa_dask.data.stores import open_store
from singa_dask.data.stores.arrow.arrow import ArrowStore
from tests.cli.conftest import Call
from tests.contracts.foreign import write_foreign
from tests.contracts.records import floats, pixels, written
from tests.data.stores.test_class_names import GREY, picture_folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a store of 600 records of 4 x 5 bytes in blocks of 256."""
    return written(tmp_path, "arrow", pixels(600, (4, 5)), block_bytes=256 * 24)


def test_inspect(call: Call, url: str) -> None:
    result = call("data", "inspect", url, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert len(facts.pop("fingerprint")) == 16
    assert facts.pop("bytes") >= 600 * 24
    assert {name: value for name, value in facts.items() if not isinstance(value, (list, dict))} == {
        "url": url,
        "format": "arrow",
        "record": "pixel (4, 5) uint8, label () int32",
        "files": 1,
        "records": 600,
        "blocks": 3,
        "block_rows": "88 to 256",
        "manifest": "none",
        "records_seen": 600,
        "labels_seen": 600,
        "layout": None,
    }
    lines = call("data", "inspect", url, "--backend", "arrow").stdout.splitlines()
    assert "records      600" in lines


def test_head(call: Call, url: str) -> None:
    records = pixels(600, (4, 5))
    lines = call("data", "head", url, "-n", 300).stdout.splitlines()
    assert len(lines) == 300
    assert lines[299].startswith(f"299: label {records['label'][299]}  [")
    assert str(records["pixel"][299].reshape(-1)[0]) in lines[299].split("[")[1].split()[0]


def test_head_of_floats_without_labels(call: Call, tmp_path: Path) -> None:
    url = written(tmp_path, "kvfile", floats(3, labels=False))
    result = call("data", "head", url)
    assert [line[:4] for line in result.stdout.splitlines()] == ["0: [", "1: [", "2: ["]


def test_verify(call: Call, tmp_path: Path) -> None:
    url = written(tmp_path, "lmdb", pixels(600))
    result = call("data", "verify", url)
    assert result.exit_code == 0
    readable = f"{url}: 600 records in 3 blocks, all can be read"
    assert result.stdout.splitlines() == [readable, "no manifest: no checksums compared"]


def test_verify_by_checksums(call: Call, url: str) -> None:
    manifest = Path(url).parent / "_singa" / f"{Path(url).name}.json"
    for _ in range(2):
        assert call("data", "verify", url, "--write-manifest").stdout.splitlines()[-1] == f"written: {manifest}"
    assert call("data", "verify", url).stdout.splitlines()[1] == "checksums of 3 blocks are right"
    assert "manifest     checksums of 3 blocks" in call("data", "inspect", url).stdout.splitlines()
    data = bytearray(Path(url).read_bytes())
    data[data.index(pixels(600, (4, 5))["pixel"][300].tobytes())] ^= 1
    Path(url).write_bytes(data)
    result = call("data", "verify", url)
    assert result.exit_code == 1
    assert f"{url}, block 1 (" in result.stderr
    assert f": singa-dask data verify {url} --write-manifest\n" in result.stderr
    assert "1 of 3 blocks cannot be read" in result.stderr
    # what is there now is right
    assert call("data", "verify", url, "--write-manifest").exit_code == 0
    assert call("data", "verify", url).exit_code == 0


@pytest.mark.parametrize("backend", ["kvfile", "csv"])
def test_data_that_does_not_fit_its_manifest(backend: str, call: Call, tmp_path: Path) -> None:
    urls = [written(tmp_path, backend, pixels(100), name=name) for name in ("a", "b", "c")]
    pattern = str(tmp_path / f"*{Path(urls[0]).suffix}")
    for url in urls[:2]:
        call("data", "verify", url, "--write-manifest")
    # the third has none
    assert "checksums of 2 blocks are right" in call("data", "verify", pattern).stdout
    path = Path(urls[1])
    lines = path.read_bytes().splitlines(keepends=True)
    # ends between two records, so all that is left can be read
    path.write_bytes(b"".join(lines[:50]) if backend == "csv" else path.read_bytes()[: path.stat().st_size // 2])
    manifest = tmp_path / "_singa" / f"{path.name}.json"
    for url in (path, pattern):
        result = call("data", "verify", url)
        assert result.exit_code == 1
        assert f"{path}: the file does not fit its manifest {manifest}. It was truncated, replaced or" in result.stderr
        assert f"write a new manifest: singa-dask data verify {path} --write-manifest\n" in result.stderr
    assert call("data", "verify", path, "--write-manifest").exit_code == 0
    assert call("data", "verify", pattern).exit_code == 0


def test_a_folder_of_pictures_has_a_manifest(call: Call, tmp_path: Path) -> None:
    url = write_foreign(tmp_path, "image-folder", pixels(6, (3, 4, 5)))
    lines = call("data", "verify", url, "--write-manifest").stdout.splitlines()
    assert lines[-1] == f"written: {tmp_path}/_singa/{Path(url).name}.json"
    assert call("data", "verify", url).stdout.splitlines()[1] == "checksums of 1 block are right"
    next(Path(url).glob("*/*.png")).unlink()
    result = call("data", "verify", url)
    assert result.exit_code == 1
    assert "block 0: the files differ from the 6 in its manifest, missing: " in result.stderr


def test_verify_names_what_is_bad(call: Call, tmp_path: Path) -> None:
    url = written(tmp_path, "csv", pixels(3))
    path = Path(url)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "what", lines[2]]))
    result = call("data", "verify", url)
    assert result.exit_code == 1
    assert "1 of 1 blocks cannot be read" in result.stderr


def test_verify_names_bad_pictures_of_several_sizes(call: Call, tmp_path: Path) -> None:
    for i, side in enumerate([4, 4, 5, 4, 5]):
        Image.fromarray(np.full((side, side), i, np.uint8)).save(tmp_path / f"{i}.png")
    # the first picture cannot give the size, the last one has another size
    for i in (0, 4):
        (tmp_path / f"{i}.png").write_bytes((tmp_path / f"{i}.png").read_bytes()[:40])
    result = call("data", "verify", str(tmp_path))
    assert result.exit_code == 1
    *faults, sizes, end = result.stderr.splitlines()
    assert [each.split(": ")[0] for each in faults] == [f"{tmp_path}/0.png", f"{tmp_path}/4.png"]
    assert sizes.startswith(f"{tmp_path}: 1 of 5 pictures differ in size from the first, 4 x 4.")
    assert end == f"{tmp_path}: 2 of 5 pictures cannot be read."
    for i in (0, 4):
        (tmp_path / f"{i}.png").unlink()
    assert call("data", "verify", str(tmp_path)).stderr == sizes.replace("1 of 5", "1 of 3") + "\n"
    assert call("data", "verify", str(tmp_path), "--resize", "4x4").exit_code == 0


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_a_remote_file_that_is_replaced_meanwhile(
    call: Call, url: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, data, read_block = f"memory://{uuid.uuid4().hex}/x.arrow", Path(url).read_bytes(), ArrowStore.read_block
    fs.write_atomic(remote, data)

    def replace(*given: Any) -> Any:
        arrays = read_block(*given)
        fs.write_atomic(remote, data)
        return arrays

    assert call("data", verb, remote).exit_code == 0
    monkeypatch.setattr(ArrowStore, "read_block", replace)
    result = call("data", verb, remote)
    assert result.exit_code == 1 and f"{remote}: the file was replaced while it was read" in result.stderr


@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
def test_bench(call: Call, url: str, shuffle: str) -> None:
    options = ("--batch", 32, "--rounds", 1, "--shuffle", shuffle)
    result = call("data", "bench", url, *options, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [rate["batches"] for rate in told["rates"]] == ["uint8", "float32 scaled"]
    assert all(rate["share"] > 0 < rate["first_epoch"] and rate["record_bytes"] == 20 for rate in told["rates"])
    lines = call("data", "bench", url, *options).stdout.splitlines()
    assert lines[0] == f"batches of 32, shuffle {shuffle}; records/s (MiB/s as stored)"
    assert [line.split("  ")[0] for line in lines[2:]] == ["uint8", "float32 scaled"]


def test_bench_of_too_few_records(call: Call, url: str) -> None:
    result = call("data", "bench", url, "--batch", 1000)
    assert result.exit_code == 1
    assert result.stderr == f"{url}: 600 records are less than a batch of 1000.\n"


def test_a_missing_file_is_named(call: Call) -> None:
    for verb in ("inspect", "head", "verify", "bench"):
        result = call("data", verb, "nowhere.arrow")
        assert result.exit_code == 2
        assert "nowhere.arrow: no such file" in result.stderr


def test_lines_of_text(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("good one\nbad zwei ä\n" * 20)
    result = call("data", "head", path, "--backend", "lines", "-n", 2)
    assert result.output == "0: good one\n1: bad zwei ä\n"
    result = call("data", "bench", path, "--backend", "lines", "--batch", 4, "--rounds", 1)
    assert result.exit_code == 0, result.output
    assert "batches of 4" in result.output


def test_verify_keeps_class_names_in_a_new_manifest(call: Call, tmp_path: Path) -> None:
    target = tmp_path / "x.bin"
    assert call("convert", "image-folder", picture_folder(tmp_path / "pictures", GREY), target).exit_code == 0
    assert call("data", "verify", target, "--write-manifest").exit_code == 0
    with open_store(str(target)) as store:
        assert store.class_names == tuple(GREY)
        assert all(block.crc is not None for block in store.blocks)


def test_a_label_that_a_conversion_has_not_chosen(call: Call, url: str) -> None:
    assert call("data", "inspect", url, "--label", "label").exit_code == 0
    for verb in (("data", "inspect"), ("data", "head"), ("init",)):
        result = call(*verb, url, "--label", "kind")
        assert result.exit_code == 1
        assert (
            f"{url}: the data has no label 'kind': the conversion chose the labels to keep. It has label."
            in result.stderr
        )
