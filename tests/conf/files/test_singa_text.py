"""SINGA's own job files: the text format, what of SINGA's is not our default, and every mistake with its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask import conf
from singa_dask.api import REGISTRIES
from singa_dask.conf.files.singa_text import Word, is_singa_text, parse
from singa_dask.conf.files.tree import Scalar, TreeMap, items
from singa_dask.errors import ConfigError
from singa_dask.inputs.image_preprocess import RGBImageConf
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers.activation import ReLUConf
from singa_dask.layers.connection import SplitConf
from singa_dask.layers.conv import ConvolutionConf
from singa_dask.layers.neuron import InnerProductConf
from singa_dask.layers.rbm import RBMConf
from singa_dask.layers.recurrent import GRUConf
from singa_dask.training.schedules import InverseConf, LinearConf, StepConf
from singa_dask.training.updaters import AdamConf, AdamMaxConf
from tests.conf.files.test_jobfile import JOBS, OF_JOBS
from tests.selection import few_examples

HERE = Path(__file__).parent / "singa"
GOLD = Path(__file__).parents[2] / "gold"
BROKEN = sorted((HERE / "broken").glob("*.conf"))
GOOD = [*sorted(HERE.glob("*.conf")), *sorted((GOLD / "confs").glob("*.conf"))]


def read(text: str) -> dict[str, list[Any]]:
    """Return the values of a message, messages in it as dicts."""

    def values(message: TreeMap) -> dict[str, list[Any]]:
        return {
            key: [each.value if isinstance(each, Scalar) else values(each) for each in items(entry.node)]  # type: ignore[arg-type]
            for key, entry in message.entries.items()
        }

    return values(parse(text, "f.conf"))


def job(text: str) -> conf.JobConf:
    return conf.load(HERE / text).job


# -- the text format ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("- 3", -3),
        ("0x1F", 31),
        ("-0x10", -16),
        ("017", 15),
        ("0", 0),
        ("1e-4", 1e-4),
        ("2E+3", 2000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1.5f", 1.5),
        ("10F", 10.0),
        ("-inf", -float("inf")),
        ('"a" "b"\n\'c\'', "abc"),
        (r'"\"\x41\101\n\\"', '"AA\n\\'),
        (r"'it\'s \xc3\xa9 \u00e9'", "it's é é"),
        ('"# no comment"', "# no comment"),
        ("kBP", "kBP"),
        ("true", "true"),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    [got] = read(f"key: {text}  # comment")["key"]
    assert got == value
    assert isinstance(got, Word) == text.isalpha()


@pytest.mark.parametrize(
    "text",
    [
        "a { b: 1 b: 2 } c: x",
        "a: { b: 1 b: 2 } c: x",
        "a:{b:1 b:2}c:x",
        "a <b:1; b:2,>; c : x ;",
        "a { b: [1, 2] } # } \n c: x",
        "# first\na [{ b: [1] b: 2 }], c: [x]",
    ],
)
def test_ways_to_say_the_same(text: str) -> None:
    assert read(text) == {"a": [{"b": [1, 2]}], "c": ["x"]}


def test_extensions_keep_their_brackets() -> None:
    assert read("[singa.a_conf] { b: 1 } [c]: 2 [x.y/z.T] < >") == {
        "[singa.a_conf]": [{"b": [1]}],
        "[c]": [2],
        "[x.y/z.T]": [{}],
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('a: "\\xff"', "f.conf:1:4: the bytes of this text are not UTF-8. Write UTF-8 text."),
        ('\n\ta: "\\U00110000"', "f.conf:2:5: no character has the number of \\U00110000."),
        ("a [1]", "f.conf:1:3: expected ':' before a list of values."),
        ("a: [1, 2", "f.conf:1:9: expected ',' or ']' in the list that starts at line 1, got the end of the file."),
        ("a: 1 b", "f.conf:1:7: expected ':' or '{' after b, got the end of the file."),
        ("a: {" * 5000, "f.conf: nested too deeply."),
        ("a: 1.2.3", "f.conf:1:4: expected a number, got '1.2.3'."),
    ],
)
def test_what_is_not_in_the_format(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.conf")
    assert str(caught.value) == told


@given(st.text("ab:{}<>[]\"'\\#,; \n-.0x1f\té", max_size=30))
def test_any_text_is_read_or_told_with_its_place(text: str) -> None:
    try:
        parse(text, "f.conf")
    except ConfigError as error:
        [problem] = error.problems
        assert problem.mark is not None and problem.mark.line > 0
        assert problem.message.endswith((".", "?"))


# -- broken and good files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_broken_job(path: Path, registries: Any) -> None:
    """Each file says in its first lines what is to be told about it, in order."""
    expected = re.findall(r"^# expect (.*)$", path.read_text(), re.MULTILINE)
    with pytest.raises(ConfigError) as caught:
        conf.load(path, registries=registries)
    lines = str(caught.value).splitlines()
    assert expected and len(lines) == len(expected), "\n".join(lines)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(f"{path}:{start}")
        assert not re.search(r"pydantic|https?://|type=|Traceback", line)


TEXTS = [path.read_text() for path in sorted(HERE.glob("*.conf"))]
PIECES = [
    "",
    "{",
    "}",
    ":",
    '"',
    "[",
    "]",
    "<",
    "kStep",
    "3",
    "-1.5",
    "\n",
    "layer {",
    "[x.y] { a: 1 }",
    "type: kMnist",
]


@given(st.sampled_from(TEXTS), st.floats(0, 1), st.integers(0, 30), st.sampled_from(PIECES))
def test_a_job_with_a_piece_changed_is_read_or_told_with_its_places(
    tmp_path_factory: pytest.TempPathFactory, registries: Any, text: str, where: float, n: int, piece: str
) -> None:
    at = round(where * len(text))
    path = tmp_path_factory.mktemp("job") / "job.conf"
    path.write_text(f"{text[:at]}{piece}{text[at + n :]}", encoding="utf-8")
    try:
        conf.load(path, registries=registries)
    except ConfigError as error:
        for problem in error.problems:
            assert problem.mark is not None and problem.mark.line > 0
            assert problem.message.endswith((".", "?"))
            assert not re.search(r"pydantic|https?://|input should", problem.message)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_job_is_the_same_as_yaml(path: Path, tmp_path: Path) -> None:
    made = conf.load(path)
    (tmp_path / "job.yaml").write_text(made.given(), encoding="utf-8")
    again = conf.load(tmp_path / "job.yaml")
    assert again.job == made.job
    assert again.given() == made.given()


@pytest.mark.parametrize("path", sorted(GOLD.glob("*.yaml")), ids=lambda path: path.stem)
def test_gold_job_is_what_was_written_by_hand(path: Path) -> None:
    made = conf.load(GOLD / "confs" / f"{path.stem}.conf").job
    ours = conf.load(path).job
    [start] = ours.checkpoint_path
    same = {"checkpoint_path": [start.replace("start/", "ckpt/")], "cluster": made.cluster}
    assert made == ours.model_copy(update=same)


def test_a_job_is_told_by_its_text_too(tmp_path: Path) -> None:
    (tmp_path / "job.txt").write_text((HERE / "mlp.conf").read_text())
    assert conf.load(tmp_path / "job.txt").job == job("mlp.conf")
    assert not is_singa_text("updater: {type: SGD}\n# a {\nneuralnet:\n  layer: [{name: a}]\n")


def test_changes_of_the_command_line_are_made_in_it_too() -> None:
    made = conf.load(HERE / "mlp.conf", sets=["neuralnet.layer[fc1].innerproduct_conf.num_output=7"]).job
    assert made.neuralnet.layer[2].block(InnerProductConf).num_output == 7


# -- what is read --------------------------------------------------------------------------------------------------


def test_mlp() -> None:
    made = job("mlp.conf")
    assert (made.name, made.disp_freq, made.checkpoint_freq, made.gpu) == ("two hidden layers", 5, 16, [])
    assert made.updater.learning_rate.block(StepConf) == StepConf(gamma=0.5, change_freq=10)
    train, test = made.neuralnet.layer[:2]
    assert (train.include, test.include) == (["train"], ["test", "val"])
    assert test.block(StoreConf).path == "data/small_mnist_test.bin"
    assert train.block(StoreConf).prefetching and train.block(StoreConf).has_label
    assert [param.name for param in made.neuralnet.layer[4].param] == ["w2", "b2"]


def test_what_singa_does_not_read_is_left_out() -> None:
    made = job("convnet.conf")
    layers = {layer.name: layer for layer in made.neuralnet.layer}
    assert made.updater.block(AdamConf) == AdamConf(beta1=0.9, beta2=0.99, bias_correction=False)
    assert (made.updater.clip_low, made.updater.clip_high) == (0, 0)
    assert layers["relu1"].block(ReLUConf).negative_slope == 0
    assert layers["crop"].block(RGBImageConf).meanfile == ""
    assert layers["conv1"].block(ConvolutionConf).bias_term
    assert layers["conv1"].block(ConvolutionConf).sizes("kernel") == (5, 3)
    assert job("autoencoder.conf").updater.delta == 1e-8


def test_shared_params_and_records_without_labels() -> None:
    made = job("rbm.conf")
    assert made.checkpoint_path == ["ws/rbm1/checkpoint/step6000-worker0", "ws/more"]
    assert made.neuralnet.layer[-1].param[0].share_from == "w2"
    assert made.neuralnet.layer[-1].block(RBMConf).bias_term
    assert not made.neuralnet.layer[0].block(StoreConf).has_label
    assert job("autoencoder.conf").neuralnet.layer[3].param[0].share_from == "w1"


def test_labels_are_read_of_records_that_a_layer_wants_them_of(tmp_path: Path) -> None:
    text = """
        name: "two losses" train_steps: 1
        train_one_batch { alg: kBP } updater { type: kSGD learning_rate { type: kFixed } }
        neuralnet {
          layer { name: "x" type: kRecordInput store_conf { path: "x" batchsize: 1 shape: 2 has_label: false } }
          layer { name: "t" type: kRecordInput store_conf { path: "t" batchsize: 1 shape: 2 has_label: true } }
          layer { name: "own" type: kRecordInput store_conf { path: "o" batchsize: 1 shape: 2 } }
          layer { name: "class" type: kSoftmaxLoss srclayers: "x" srclayers: "x" }
          layer { name: "near" type: kEuclideanLoss srclayers: "x" srclayers: "t" }
          layer { name: "mine" user_type: "losses.Mine" srclayers: "x" srclayers: "own" }
        }
        cluster { workspace: "ws" }
    """
    (tmp_path / "job.conf").write_text(text)
    inputs = conf.load(tmp_path / "job.conf").job.neuralnet.layer[:3]
    assert [layer.block(StoreConf).has_label for layer in inputs] == [True, False, True]


def test_a_gru_has_biases_when_it_has_params_for_them(tmp_path: Path) -> None:
    text = (HERE / "char_rnn.conf").read_text()
    assert not conf.load(HERE / "char_rnn.conf").job.neuralnet.layer[3].block(GRUConf).bias_term
    biases = "".join(f'param {{ name: "{name}" init {{ type: kConstant }} }}' for name in ("z_b", "r_b", "c_b"))
    (tmp_path / "job.conf").write_text(text.replace("dim_hidden: 8 }", f"dim_hidden: 8 bias_term: false }} {biases}"))
    assert conf.load(tmp_path / "job.conf").job.neuralnet.layer[3].block(GRUConf).bias_term


def test_extensions_are_for_user_parts() -> None:
    made = job("user_parts.conf")
    assert (made.train_one_batch.alg, made.train_one_batch.user_conf) == ("mine.Alg", {"window": 10})
    assert (made.updater.type, made.updater.user_conf) == ("mine.Rule", {"rule_strength": -1.5})
    assert made.updater.learning_rate.type == "mine.Rate"
    [layer] = made.neuralnet.layer
    assert layer.user_conf == {
        "path": "words.bin",
        "max_window": 10,
        "kinds": ["KEEP", "DROP"],
        "check": True,
        "inner": {"a": 1, "b": {"c": "x"}},
        "rate_conf": 0.5,
    }


def test_extensions_go_into_a_user_conf_that_is_there(tmp_path: Path) -> None:
    text = (
        (HERE / "user_parts.conf").read_text().replace("[rule_strength]: -1.5", "[a.b] { x: 1 } user_conf { y: KEEP }")
    )
    (tmp_path / "job.conf").write_text(text)
    assert conf.load(tmp_path / "job.conf").job.updater.user_conf == {"y": "KEEP", "x": 1}
    (tmp_path / "job.conf").write_text(text.replace("{ y: KEEP }", ": 3"))
    with pytest.raises(ConfigError, match=r"job\.conf:6:72: updater.user_conf: expected a mapping"):
        conf.load(tmp_path / "job.conf")


def test_deprecated_input_layers_become_todays() -> None:
    made = job("deprecated.conf")
    train, test, fc, loss = made.neuralnet.layer
    normed: dict[str, Any] = {"shape": [1, 28, 28], "mean_value": 127.5, "std_value": 127.5}
    assert train.type == test.type == "RecordInput"
    assert train.block(StoreConf) == StoreConf(
        backend="kvfile", path="data/small_mnist_train.bin", batchsize=[32], random_skip=5, **normed
    )
    assert test.block(StoreConf) == StoreConf(backend="lmdb", path="data/test", batchsize=[8], **normed)
    assert (train.exclude, test.exclude) == (["test", "val"], ["train", "val"])
    assert (fc.srclayers, loss.srclayers) == (["data"], ["fc", "data"])
    assert (made.updater.clip_low, made.updater.clip_high) == (0, 0)


@pytest.mark.parametrize(("crop", "size"), [(0, 32), (28, 32), (227, 256)])
def test_rgb_image_becomes_image_preprocess(tmp_path: Path, crop: int, size: int) -> None:
    text = (HERE / "deprecated.conf").read_text()
    wanted = f'rgbimage_conf {{ scale: 0.5 cropsize: {crop} mirror: true meanfile: "mean.bin" }}'
    text = text.replace("kMnist", "kRGBImage").replace("mnist_conf { norm_a: 127.5 norm_b: 1 }", wanted)
    (tmp_path / "job.conf").write_text(text)
    train, _, image, fc, loss = conf.load(tmp_path / "job.conf").job.neuralnet.layer
    store = train.block(StoreConf)
    assert (store.shape, store.mean_file, store.std_value) == ([3, size, size], "mean.bin", [])
    assert image.type == "ImagePreprocess"
    assert image.block(RGBImageConf) == RGBImageConf(scale=0.5, cropsize=crop, mirror=True)
    assert (fc.srclayers, loss.srclayers) == (["mnist"], ["fc", "data"])


def test_defaults_of_singa_that_are_not_ours(tmp_path: Path) -> None:
    text = (HERE / "mlp.conf").read_text().replace("test_steps: 2", "id: 3").replace("type: kStep,", "type: kLinear")
    text = text.replace("step_conf:{gamma:0.5f change_freq:10}", "linear_conf { change_freq: 9 final_lr: 0 }")
    (tmp_path / "job.conf").write_text(text.replace("kSGD", "kAdamMax"))
    made = conf.load(tmp_path / "job.conf").job
    assert made.test_steps == 0
    assert made.updater.learning_rate.block(LinearConf) == LinearConf(change_freq=9, final_lr=0, clamp=False)
    assert made.updater.block(AdamMaxConf) == AdamMaxConf(bias_correction=False)


def test_an_extension_of_the_job_and_a_schedule_without_its_block(tmp_path: Path) -> None:
    text = (HERE / "mlp.conf").read_text().replace("type: kStep,", "type: kInverse")
    text = text.replace("step_conf:{gamma:0.5f change_freq:10}", "")
    (tmp_path / "job.conf").write_text(text + "\n[singa.extra] { depth: 3 }\n")
    made = conf.load(tmp_path / "job.conf").job
    assert made.user_conf == {"depth": 3}
    assert made.updater.learning_rate.given_block(InverseConf) == InverseConf()


def test_names_of_older_versions(tmp_path: Path) -> None:
    added = 'layer { name: "s" type: kSplit srclayers: "fc2" split_conf { split_num: 2 } }\n}\ncluster'
    (tmp_path / "job.conf").write_text((HERE / "mlp.conf").read_text().replace("}\ncluster", added))
    path = tmp_path / "job.conf"
    assert conf.load(path).job.neuralnet.layer[-1].block(SplitConf).num_splits == 2
    path.write_text(path.read_text().replace("split_num: 2", "split_num: 2 num_splits: 3"))
    with pytest.raises(ConfigError, match=r"num_splits: num_splits and split_num are two names of the same key\."):
        conf.load(path, registries=REGISTRIES)


# -- from YAML to SINGA's format and back ------------------------------------------------------------------------------


def written(value: Any, key: str = "") -> str:
    """Write values in SINGA's format; names of enumerations stand between quotes, which is read too."""
    if isinstance(value, dict):
        inner = "\n".join(written(each, name) for name, each in value.items())
        return f"{key} {{\n{inner}\n}}" if key else inner
    if isinstance(value, list):
        return "\n".join(written(each, key) for each in value)
    if isinstance(value, str):
        quoted = "".join(c if c.isalnum() else "".join(f"\\x{b:02x}" for b in c.encode()) for c in value)
        return f'{key}: "{quoted}"'
    return f"{key}: {str(value).lower()}"


@few_examples(20)
@given(JOBS)
def test_any_simple_job_is_read_as_from_yaml(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    for layer in values["neuralnet"]["layer"]:
        layer.get("store_conf", {}).pop("storage_options", None)
        if layer["type"] == "Pooling":
            layer["pooling_conf"] = {"ties": "all"}
    path = tmp_path_factory.mktemp("job") / "job.conf"
    path.write_text(written(values), encoding="utf-8")
    made = conf.load(path, registries=OF_JOBS)
    assert made.job == conf.JobConf.model_validate(values, context={"registries": OF_JOBS})
    path = path.with_suffix(".yaml")
    path.write_text(made.given(), encoding="utf-8")
    assert conf.load(path, registries=OF_JOBS).job == made.job
