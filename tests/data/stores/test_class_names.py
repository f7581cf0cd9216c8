"""Class names: kept by every format that has a place for them, and matched by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from singa_dask.data.codecs.plain_arrays import class_numbers
from singa_dask.data.stores import STORES, open_store, write_manifest
from singa_dask.data.stores.label_match import check_label, label_table, relabel
from singa_dask.data.stores.training_knowledge import TrainingKnowledge
from singa_dask.data.tables.facts import TableFacts
from singa_dask.errors import DataError
from tests.contracts.foreign import example, frame
from tests.contracts.records import read_all
from tests.converting import convert

GREY = {"ant": 10, "bee": 20, "cat": 30}


def picture_folder(folder: Path, classes: dict[str, int], n: int = 2) -> str:
    """Write ``n`` grey pictures of each class: the class can be told from the pixels."""
    for name, grey in classes.items():
        (folder / name).mkdir(parents=True)
        for i in range(n):
            Image.fromarray(np.full((4, 4, 3), grey, np.uint8)).save(folder / name / f"{i}.png")
    return str(folder)


def greys(url: str) -> list[tuple[int, int]]:
    """Return (label, grey) of each record."""
    with open_store(url) as store:
        records = read_all(store)
    values = records["pixel" if "pixel" in records else "data"].reshape(len(records["label"]), -1)[:, 0]
    return list(zip(records["label"].tolist(), values.astype(int).tolist(), strict=True))


def test_folders_are_the_class_names_but_hidden_ones_are_not(tmp_path: Path) -> None:
    url = picture_folder(tmp_path / "pictures", {**GREY, ".cache": 40})
    with open_store(url, "image-folder") as store:
        assert store.class_names == ("ant", "bee", "cat")
        assert store.count == 6


def test_accents_of_macs_and_of_others_are_one_class(tmp_path: Path) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    url = picture_folder(tmp_path / "pictures", {composed: 10, apart: 20, "the": 30}, n=1)
    assert sorted(greys(url)) == [(0, 10), (0, 20), (1, 30)]
    (tmp_path / "list.txt").write_text(f"pictures/{composed}/0.png {apart}\npictures/the/0.png the\n")
    with open_store(str(tmp_path / "list.txt"), "image-list", classes=[composed, "the"]) as store:
        assert read_all(store)["label"].tolist() == [0, 1]
    lines = [json.dumps({"x": [grey], "label": label}) for grey, label in [(10, composed), (20, apart), (30, "the")]]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    assert greys(str(tmp_path / "x.jsonl")) == [(0, 10), (0, 20), (1, 30)]
    assert class_numbers(np.array([apart, "the"]), (composed, "the"), "y").tolist() == [0, 1]
    assert label_table("x", (apart, "the"), ("the", composed), "training") == pytest.approx([1, 0])
    learned = TrainingKnowledge()
    learned.inherited.class_names["data"] = (composed, "the")
    assert learned.learn("data", [apart]) == (composed, "the")


@pytest.mark.parametrize("name", ["x.arrow", "x.parquet", "x.npz", "x.lmdb", "x.bin", "x.csv"])
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.long), 2])
def test_convert_keeps_them(name: str, shards: int, tmp_path: Path) -> None:
    url = picture_folder(tmp_path / "pictures", GREY)
    (tmp_path / "out").mkdir()
    target = str(tmp_path / "out" / name)
    convert("image-folder", [url], target, shuffle=1, shards=shards, verify=True)
    target = target if shards == 1 else target.replace("x.", "x-*.")
    with open_store(target) as store:
        assert store.class_names == ("ant", "bee", "cat")
    # of what a new manifest is made: the store, or the older manifest
    write_manifest(target)
    with open_store(target) as store:
        assert store.class_names == ("ant", "bee", "cat")


def test_a_conversion_in_place_of_another_does_not_take_its_names(tmp_path: Path) -> None:
    target = str(tmp_path / "x.bin")
    convert("image-folder", [picture_folder(tmp_path / "pictures", GREY)], target)
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2), np.uint8), y=np.arange(3))
    convert("npz", [str(tmp_path / "a.npz")], target)
    with open_store(target) as store:
        assert (store.count, store.class_names) == (3, ())


def test_convert_from_a_named_store_keeps_them(tmp_path: Path) -> None:
    url = picture_folder(tmp_path / "pictures", GREY)
    convert("image-folder", [url], str(tmp_path / "a.arrow"))
    convert("arrow", [str(tmp_path / "a.arrow")], str(tmp_path / "b.arrow"), split={"train": 0.5, "test": 0.5})
    for part in ("train", "test"):
        with open_store(str(tmp_path / f"b-{part}.arrow")) as store:
            assert store.class_names == ("ant", "bee", "cat")


def test_a_store_without_names_is_written_as_before(tmp_path: Path) -> None:
    records = {"data": np.zeros((3, 2), np.float32), "label": np.arange(3, dtype=np.int32)}
    np.savez(tmp_path / "a.npz", x=records["data"], y=records["label"])
    convert("npz", [str(tmp_path / "a.npz")], str(tmp_path / "a.arrow"))
    with open_store(str(tmp_path / "a.arrow")) as store:
        assert store.class_names == ()
    assert b"class_names" not in (tmp_path / "a.arrow").read_bytes()
    assert "class_names" not in json.loads((tmp_path / "_singa" / "a.arrow.json").read_text())


def test_several_folders_are_converted_by_name(tmp_path: Path) -> None:
    first = picture_folder(tmp_path / "first", GREY, 1)
    second = picture_folder(tmp_path / "second", {"bee": 20, "cat": 30}, 1)
    convert("image-folder", [first, second], str(tmp_path / "x.arrow"))
    assert greys(str(tmp_path / "x.arrow")) == [(0, 10), (1, 20), (2, 30), (1, 20), (2, 30)]
    third = picture_folder(tmp_path / "third", {"dog": 50, "bee": 20}, 1)
    with pytest.raises(DataError, match=r"third: unknown class names: dog\. .* are bee, dog\. .*ant, bee, cat"):
        convert("image-folder", [first, third], str(tmp_path / "y.arrow"))


def test_names_beside_batches_of_cifar(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3073) * 2)
    (tmp_path / "batches.meta.txt").write_text("airplane\nautomobile\n\n")
    with open_store(str(tmp_path / "data_batch_1.bin"), "cifar") as store:
        assert store.class_names == ("airplane", "automobile")


def test_names_in_parquet_of_hugging_face(tmp_path: Path) -> None:
    features = {"x": {}, "label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    table = pa.table({"x": [[0.5, 1.5]] * 3, "label": [0, 1, 1]})
    noted = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(noted, tmp_path / "x.parquet")
    with open_store(str(tmp_path / "x.parquet")) as store:
        assert store.class_names == ("no", "yes")
    for strange in ("[]", "{", '{"info": {"features": {"label": {"names": "no"}}}}'):
        pq.write_table(table.replace_schema_metadata({"huggingface": strange}), tmp_path / "x.parquet")
        with open_store(str(tmp_path / "x.parquet")) as store:
            assert store.class_names == ()


def test_a_table_of_labels() -> None:
    assert label_table("u", ["a", "b"], ["a", "b"], "training") is None
    assert label_table("u", ["a", "b"], ["a", "b", "c"], "training") is None
    assert label_table("u", [], ["a"], "training") is None
    assert label_table("u", ["a"], [], "training") is None
    table = label_table("u", ["b", "a"], ["a", "c", "b"], "training")
    assert table is not None
    assert relabel(np.array([0, 1, 1]), table, "u").tolist() == [2, 0, 0]
    with pytest.raises(DataError, match=r"u: label 2 has no class name. Expected 0 to 1"):
        relabel(np.array([0, 2]), table, "u")
    with pytest.raises(DataError, match=r"u: unknown class names: z\. .* are z, a\. Expected .* training: a, b"):
        label_table("u", ["z", "a"], ["a", "b"], "training")


def test_which_names_a_layer_has_to_use() -> None:
    names = TrainingKnowledge()
    assert names.learn("data", ["a", "b"]) == ("a", "b")
    assert names.find("data") == names.find("test") == names.known_for("") == ("a", "b")
    assert names.learn("other", []) == ()
    assert names.find("test") == ("a", "b")
    names.learn("third", ["x"])
    assert (names.find("third"), names.find("other")) == (("x",), ())
    with pytest.raises(DataError, match=r"layer test: .*different classes: data: a, b; other: ; third: x"):
        names.find("test")


def test_names_of_values_that_a_run_starts_from() -> None:
    names = TrainingKnowledge()
    names.inherited.class_names["data"] = ("a", "b", "c")
    assert names.learn("images", ["b", "c"]) == ("a", "b", "c")
    names = TrainingKnowledge()
    names.inherited.class_names["data"] = ("a", "b", "c")
    assert names.learn("images", ["b", "d"]) == ("b", "d")


def test_names_are_read_where_training_has_not_begun() -> None:
    names = TrainingKnowledge()
    names.readers = {"data": lambda: (("a", "b"), "")}
    assert names.find("test") == ("a", "b")


def test_names_in_lists_of_images(tmp_path: Path) -> None:
    picture_folder(tmp_path, GREY, 1)
    names, listed = tmp_path / "names.txt", tmp_path / "list.txt"
    listed.write_text("cat/0.png cat\nant/0.png ant\n")
    with open_store(str(listed), "image-list") as store:
        assert store.class_names == ("ant", "cat")
        assert read_all(store)["label"].tolist() == [1, 0]
    for text in ("ant\nbee\ncat\n", "2:cat\n0:ant\n1:bee\n"):
        names.write_text(text)
        with open_store(str(listed), "image-list", classes=str(names)) as store:
            assert store.class_names == ("ant", "bee", "cat")
            assert read_all(store)["label"].tolist() == [2, 0]
    listed.write_text("cat/0.png 1\nant/0.png 0\n")
    with open_store(str(listed), "image-list", classes=["ant", "cat"]) as store:
        assert read_all(store)["label"].tolist() == [1, 0]
        converted = str(tmp_path / "out.arrow")
    convert("image-list", [str(listed)], converted, reading={"classes": ["ant", "cat"]})
    with open_store(converted) as store:
        assert store.class_names == ("ant", "cat")


def test_names_of_tfrecords(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    text = [{"x": [1.0], "label": b"bee"}, {"x": [2.0], "image/class/text": b"ant"}]
    path.write_bytes(b"".join(frame(example(each)) for each in text))
    with open_store(str(path), classes=["ant", "bee"]) as store:
        assert store.class_names == ("ant", "bee")
        assert read_all(store)["label"].tolist() == [1, 0]
    path.write_bytes(frame(example({"x": [1.0], "label": 1})))
    with open_store(str(path), classes=["ant", "bee"]) as store:
        assert store.class_names == ("ant", "bee")
        assert read_all(store)["label"].tolist() == [1]


def test_wrong_names_of_classes(tmp_path: Path) -> None:
    picture_folder(tmp_path, GREY, 1)
    listed, records, names = tmp_path / "list.txt", tmp_path / "x.tfrecord", tmp_path / "names.txt"
    names.write_text("0:ant\n2:bee\n")

    def refuse(message: str, content: str, **options: object) -> None:
        listed.write_text(content)
        with pytest.raises(DataError, match=message):
            open_store(str(listed), "image-list", **options)

    refuse(r"list.txt, line 2: the label is 'b', expected a name and a label", "ant/0.png 0\nbee/0.png b\n")
    refuse(r"line 1: the label is 'b', expected one of the classes ant, bee", "bee/0.png b\n", classes=["ant", "bee"])
    refuse(r"line 1: the label 2 has no class name. Expected 0 to 1", "bee/0.png 2\n", classes=["ant", "bee"])
    refuse(r"list.txt: classes: the name 'ant' occurs twice", "bee/0.png 2\n", classes=["ant", "ant"])
    refuse(r"names.txt: the numbers of the 2 names are not 0 to 1, each once", "bee/0.png 2\n", classes=str(names))
    refuse(r"line 1: the line is 'my picture.png', expected a name and a label", "my picture.png\n")
    records.write_bytes(frame(example({"x": [1.0], "label": b"cat"})))
    with pytest.raises(DataError, match=r"the label 'cat' is text. Set classes in user_conf to the names in order"):
        open_store(str(records))
    with pytest.raises(DataError, match=r"the label 'cat' is not among the 2 names in classes"):
        open_store(str(records), classes=["ant", "bee"])


@pytest.mark.parametrize("backend", ["arrow", "parquet"])
def test_a_label_that_records_of_a_conversion_do_not_have(backend: str, tmp_path: Path) -> None:
    url, records = str(tmp_path / f"x.{backend}"), {"data": np.zeros((3, 2), np.float32), "label": np.int32([0, 1, 0])}
    facts = TableFacts(("a", "b"), labels={"species": ("cat", "dog")})
    STORES.find(backend).write(url, records, table_facts=facts.to_dict())
    with open_store(url) as store, open_store(str(tmp_path / f"*.{backend}")) as shards:
        for label in ("", "label", "species"):
            check_label(store, label)
        for each in (store, shards):
            with pytest.raises(
                DataError,
                match=r"the data has no label 'kind': the conversion chose the labels to keep\. It has label or s",
            ):
                check_label(each, "kind")
    with pytest.raises(DataError, match=r"the data has no label 'kind'"):
        convert(backend, [url], str(tmp_path / "y.arrow"), reading={"label": "kind"})
    STORES.find(backend).write(url, {"data": records["data"]})
    with open_store(url) as store, pytest.raises(DataError, match=r"the data has no label 'label': .* It has none\."):
        check_label(store, "label")
