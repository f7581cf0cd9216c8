"""Columns of texts: their tokens are those that Python's own functions, and the package tokenizers, find."""

from __future__ import annotations

import csv
import json
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import singa_dask as sd
from singa_dask.conf.job import JobConf
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.tables.facts import TableFacts
from singa_dask.errors import ConfigError, DataError
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.runtime.planning.absolute_paths import absolute_paths
from tests.contracts.records import read_all

TEXTS = [
    "The film was great, great; GREAT!",
    "the plot... wasn't\tgreat\n\nthe end",
    "Ünïcode—नमस्ते दुनिया, 你好 x_1 3.5\u00a0z",
    "  .\n",
    "a b c d e f g h i j k l m n o p",
]


def words_of(text: str) -> list[str]:
    """Return the words of a text, a character after another."""
    found, word = list[str](), ""
    for character in text:
        if unicodedata.category(character)[0] in "LMN" or character == "_":
            word += character
            continue
        found += [word] * bool(word) + [character] * (not character.isspace())
        word = ""
    return found + [word] * bool(word)


def wanted(tokens: list[list[str]], length: int, vocab_size: int) -> np.ndarray:
    counts = Counter(token for text in tokens for token in text)
    by_count = sorted(counts, key=lambda token: (-counts[token], token))[: vocab_size - 1]
    numbers = {token: i for i, token in enumerate(by_count, 1)}
    rows = [[numbers.get(token, 0) for token in text][:length] for text in tokens]
    return np.array([row + [-1] * (length - len(row)) for row in rows], np.float32)


def written(path: Path, texts: list[str], form: str) -> str:
    table = {"text": texts, "size": np.arange(len(texts)) / 2, "label": np.arange(len(texts)) % 2}
    if form == "parquet":
        # several row groups, so several blocks count
        pq.write_table(pa.table(table), path / "x.parquet", row_group_size=2)
        return str(path / "x.parquet")
    if form == "jsonl":
        rows = [
            dict(zip(table, row, strict=True))
            for row in zip(texts, *(table[key].tolist() for key in ("size", "label")), strict=True)
        ]
        (path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path / "x.jsonl")
    with (path / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([list(table), *zip(*table.values(), strict=True)])
    return str(path / "x.csv")


def opened(url: str, said: dict[str, Any], **options: Any) -> TableStore:
    return TableStore(url, **{"features": ["text", "size"], "label": "label", "texts": {"text": said}, **options})


@pytest.mark.pairs
@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokens", ["words", "characters"])
def test_tokens(tmp_path: Path, tokens: str, lowercase: bool, form: str) -> None:
    url = written(tmp_path, TEXTS, form)
    folded = [text.lower() if lowercase else text for text in TEXTS]
    split = [words_of(text) if tokens == "words" else list(text) for text in folded]
    for length, vocab_size in ((1, 2), (7, 9), (60, 10000)):
        said = {"tokens": tokens, "lowercase": lowercase, "length": length, "vocab_size": vocab_size}
        with opened(url, said, block_bytes=40) as store:
            found = read_all(store)["data"]
            assert store.table_facts is not None
            facts = TableFacts.from_dict(store.table_facts.to_dict())
            assert len(store.blocks) > 1
        np.testing.assert_array_equal(found[:, :-1], wanted(split, length, vocab_size))
        np.testing.assert_array_equal(found[:, -1], np.arange(len(TEXTS)) / 2)
        # other data are read with the vocabulary of the training data
        (tmp_path / "other").mkdir(exist_ok=True)
        other = written(tmp_path / "other", [*TEXTS[:2], "\u2603 unseen"], form)
        with opened(other, said, facts=facts.to_dict()) as store:
            again = read_all(store)["data"]
        np.testing.assert_array_equal(again[:2], found[:2])
        assert again[2, 0] == 0


def test_tokenizer(tmp_path: Path) -> None:
    hugging_face = pytest.importorskip("tokenizers")
    made = hugging_face.Tokenizer(hugging_face.models.BPE(unk_token="[UNK]"))
    made.pre_tokenizer = hugging_face.pre_tokenizers.Whitespace()
    trainer = hugging_face.trainers.BpeTrainer(special_tokens=["[UNK]", "[CLS]", "[SEP]"], vocab_size=60)
    made.train_from_iterator(TEXTS, trainer)
    made.post_processor = hugging_face.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    url, said = written(tmp_path, TEXTS, "csv"), {"length": 9, "tokenizer": str(tmp_path / "tokenizer.json")}
    with opened(url, said) as store:
        found = read_all(store)["data"]
        assert store.table_facts is not None
        facts = store.table_facts.to_dict()
    made.enable_truncation(9)
    for row, text in zip(found, TEXTS, strict=True):
        ids = made.encode(text).ids
        np.testing.assert_array_equal(row[:-1], ids + [-1] * (9 - len(ids)))
    # the checkpoint has its content
    (tmp_path / "tokenizer.json").unlink()
    with opened(url, said, facts=facts) as store:
        np.testing.assert_array_equal(read_all(store)["data"], found)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer\.json of Hugging Face"):
        opened(url, said)


def test_errors(tmp_path: Path) -> None:
    url = written(tmp_path, [*TEXTS, " \t\u3000"], "parquet")
    store = opened(url, {"length": 4})
    with pytest.raises(DataError, match=r"row group 2, record 5, column 'text': no value. Set missing: skip"):
        read_all(store)
    several = opened(written(tmp_path, ["a", "", "b", " "], "csv"), {"length": 4})
    with pytest.raises(DataError, match=r"line 3, column 'text': no value, the first of 2 in 4 records\. Set"):
        read_all(several)
    with opened(url, {"length": 4}, missing="skip") as store:
        assert store.count == len(TEXTS)
        assert store.table_facts is not None
        facts = store.table_facts.to_dict()
    for said in ({"length": 5}, {"length": 4, "lowercase": True}):
        with pytest.raises(DataError, match=r"the options in texts for column 'text' differ from training"):
            opened(url, said, facts=facts)
    with pytest.raises(DataError, match=r"texts has 'text', which is no feature"):
        opened(url, {"length": 4}, features=["size"])
    with pytest.raises(DataError, match=r"column 'text' holds strings, .* texts: \{'text': \{length: \.\.\.\}\}"):
        opened(url, {"length": 4}, texts={})
    with pytest.raises(DataError, match=r"the tokenizer decides it"):
        opened(url, {"length": 4, "tokenizer": "x.json", "lowercase": True})


def job_of(url: str, **changes: Any) -> dict[str, Any]:
    """Return the keys of a job that learns which of two texts a record has."""
    store = {"path": url, "features": ["text"], "texts": {"text": {"length": 3, "vocab_size": 8}}, "label": "label"}
    store |= {"shape": [3], "batchsize": 4, **changes}
    layers = [
        {"name": "data", "type": "RecordInput", "store_conf": store},
        {
            "name": "table",
            "type": "Embedding",
            "srclayers": "data",
            "embedding_conf": {"vocab_size": 8, "feature_dim": 4},
        },
        {"name": "pool", "type": "TimePooling", "srclayers": "table", "unroll_len": 1},
        {"name": "scores", "type": "InnerProduct", "srclayers": "pool", "innerproduct_conf": {"num_output": 2}},
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["scores", "data"]},
    ]
    for layer in layers[3:]:
        layer["unroll_len"] = 1
    rate = {"type": "Fixed", "base_lr": 0.1}
    net = {"unroll_len": 3, "layer": layers}
    alg = {"alg": "BP"}
    return {
        "name": "texts",
        "train_one_batch": alg,
        "train_steps": 30,
        "updater": {"type": "Adam", "learning_rate": rate},
        "neuralnet": net,
    }


def test_a_model_takes_texts(tmp_path: Path) -> None:
    url = written(tmp_path, ["a good film", "a bad film"] * 4, "csv")
    job = job_of(url)
    run = sd.train(sd.Job(job.pop("neuralnet"), **job), run_dir=str(tmp_path / "run"), progress=False)
    model = sd.load_model(run)
    for texts in ({"text": ["a bad film", "good film"]}, [{"text": "a bad film"}, {"text": "good film"}]):
        np.testing.assert_array_equal(model.predict(texts), [1, 0])
    job = job_of(url, standardise=True)
    with pytest.raises(ConfigError, match=r"standardise: it would change the numbers of the tokens"):
        sd.Job(job.pop("neuralnet"), **job)


def test_paths_in_columns(tmp_path: Path) -> None:
    job = job_of(str(tmp_path / "x.csv"), texts={}, categories={"path": ["a", "b"]}, features=["path"])
    store = absolute_paths(JobConf.model_validate(job)).neuralnet.layer[0].block(StoreConf)
    assert store.categories == {"path": ["a", "b"]}
    job = job_of(str(tmp_path / "x.csv"), texts={"text": {"length": 3, "tokenizer": "x.json"}})
    store = absolute_paths(JobConf.model_validate(job)).neuralnet.layer[0].block(StoreConf)
    assert store.texts["text"].tokenizer == str(Path("x.json").absolute())


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_missing_texts_that_count_as_empty_are_counted(tmp_path: Path, form: str) -> None:
    url = written(tmp_path, ["a b", "", "c", ""], form)
    texts = {"text": {"length": 2}}
    with TableStore(url, features=["text"], label="label", texts=texts, blank_texts=True) as store:
        filled = store.begin_counting(None)
        read_all(store)
        assert sum(counts.filled["text"] for counts in filled.values()) == 2
