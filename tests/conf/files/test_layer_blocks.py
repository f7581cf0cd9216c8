"""Blocks of layers, merge keys and anchors: what they stand for, and what is refused where the user has written it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singa_dask.api import REGISTRIES
from singa_dask.conf.files import layer_blocks
from singa_dask.conf.files.jobfile import JobFile, load, loads
from singa_dask.errors import ConfigError

ROOT = Path(__file__).parents[3]
HEAD = """
train_steps: 1
train_one_batch: {alg: BP}
updater: {type: SGD, learning_rate: {type: Fixed, base_lr: 0.1}}
"""
BLOCKS = """
blocks:
  dense:
    values: {width: null, kind: ReLU}
    layer:
      - {name: fc, type: InnerProduct, srclayers: $in, innerproduct_conf: {num_output: $width},
         param: [{name: w}, {name: b}]}
      - {name: act, type: $kind, srclayers: fc}
  both:
    inputs: [left, right]
    output: sum
    layer:
      - {name: a, block: dense, srclayers: $left, values: {width: 4}}
      - {name: b, block: dense, srclayers: $right, values: {width: 4, kind: Tanh}}
      - {name: sum, type: Add, srclayers: [a, b]}
      - {name: side, type: Sigmoid, srclayers: sum}
"""
NET = """
neuralnet:
  layer:
    - {name: data, type: RecordInput, store_conf: {path: x, shape: [4], batchsize: 2}}
"""


def read(*uses: str, blocks: str = BLOCKS) -> JobFile:
    return loads(HEAD + blocks + NET + "".join(f"    - {use}\n" for use in uses), "job.yaml", registries=REGISTRIES)


def wiring(job: JobFile) -> dict[str, tuple[str, list[str]]]:
    return {layer.name: (layer.type, layer.srclayers) for layer in job.job.neuralnet.layer[1:]}


def test_a_block_has_its_name_before_those_of_its_layers() -> None:
    job = read("{name: h, block: dense, srclayers: data, values: {width: 8}}", "{name: out, type: Tanh, srclayers: h}")
    assert wiring(job) == {
        "h.fc": ("InnerProduct", ["data"]),
        "h.act": ("ReLU", ["h.fc"]),
        "out": ("Tanh", ["h.act"]),
    }
    fc = job.job.neuralnet.layer[1]
    assert fc.model_dump()["innerproduct_conf"]["num_output"] == 8
    assert [param.name for param in fc.param] == ["h.w", "h.b"]


def test_a_repeated_block_reads_the_one_before() -> None:
    job = read(
        "{name: h, block: dense, srclayers: data, values: {width: 8, kind: Tanh}, repeat: 3}",
        "{name: out, type: Tanh, srclayers: h}",
    )
    names = [f"h.{i}.{name}" for i in (1, 2, 3) for name in ("fc", "act")]
    assert list(wiring(job)) == [*names, "out"]
    assert [sources for _, sources in wiring(job).values()] == [["data"], *([name] for name in names)]


def test_blocks_stand_in_blocks_and_have_several_inputs() -> None:
    job = read(
        "{name: two, block: both, srclayers: [data, data], repeat: 2}", "{name: out, type: Tanh, srclayers: two}"
    )
    found = wiring(job)
    assert found["two.1.a.fc"] == found["two.1.b.fc"] == ("InnerProduct", ["data"])
    assert found["two.2.a.fc"] == ("InnerProduct", ["two.1.sum"])
    assert found["two.2.b.fc"] == ("InnerProduct", ["data"])
    assert found["two.2.b.act"][0] == "Tanh"
    assert found["two.2.sum"] == ("Add", ["two.2.a.act", "two.2.b.act"])
    assert found["out"] == ("Tanh", ["two.2.sum"])


def test_a_value_may_be_a_list_or_a_block_of_keys() -> None:
    blocks = """
blocks:
  any:
    inputs: all
    values: {how: null}
    layer: {name: fc, type: InnerProduct, srclayers: [$all], innerproduct_conf: $how}
"""
    job = read(
        "{name: x, block: any, srclayers: data, values: {how: {num_output: 3, bias_term: false}}}", blocks=blocks
    )
    block = job.job.neuralnet.layer[1].model_dump()["innerproduct_conf"]
    assert (block["num_output"], block["bias_term"]) == (3, False)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("{name: h, block: dens, srclayers: data}", "unknown block 'dens'. Did you mean 'dense'?"),
        ("{name: h, block: dense, srclayers: data}", "needs a value for 'width'"),
        ("{name: h, block: dense, srclayers: data, values: {widht: 3}}", "no value 'widht'. Did you mean 'width'?"),
        ("{name: h, block: dense, srclayers: [data, data], values: {width: 3}}", "reads 2 layers, expected 1"),
        (
            "{name: h, block: dense, srclayers: data, values: {width: 3}, repeat: 0}",
            "repeat 0. Expected a whole number of at least 1",
        ),
        ("{name: h, block: dense, srclayers: data, kind: x}", "has no key 'kind'"),
        ("{block: dense, srclayers: data, values: {width: 3}}", "expected a name"),
        # the line of the block, not of its use
        (
            "{name: h, block: dense, srclayers: data, values: {width: many}}",
            r"h\.fc\]\.innerproduct_conf",
        ),
        (
            "{name: h, block: dense, srclayers: dat, values: {width: 3}}",
            "unknown layer 'dat'",
        ),
    ],
)
def test_a_use_that_is_wrong(use: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read(use)
    assert f"job.yaml:{len((HEAD + BLOCKS + NET).splitlines()) + 1}:" in str(error.value)


def test_names_that_could_mean_two_layers() -> None:
    use = "{name: h, block: dense, srclayers: data, values: {width: 3}}"
    with pytest.raises(ConfigError, match="a use of a block is called 'h', too"):
        read(use, "{name: h, type: Tanh, srclayers: data}")
    with pytest.raises(ConfigError, match=r"duplicate name 'h\.fc'"):
        read(use, use)


def test_more_layers_than_a_net_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_blocks, "_MAX_LAYERS", 1_000)
    with pytest.raises(ConfigError, match=r"blocks expand to more than 1,000 layers\. Is a repeat"):
        read("{name: h, block: dense, srclayers: data, values: {width: 3}, repeat: 1000000000}")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("{}", "block 'x': expected a list of layers under layer"),
        ("[]", "block 'x': expected {layer: "),
        ("{layer: [{type: Tanh, srclayers: $in}]}", "block 'x': expected a name for each of its layers"),
        ("{layer: [{name: a, type: Tanh, srclayers: $of}]}", "has no input and no value 'of'"),
        ("{layer: [{name: a, type: Tanh, srclayers: $in}], output: b}", "block 'x' has no layer 'b'"),
        ("{layer: [{name: a, block: x, srclayers: $in}]}", "block 'x' contains itself: x > x"),
        ("{layers: []}", "block 'x' has no key 'layers'. Known: inputs, values, output, layer"),
        ("{inputs: a, values: {a: 1}, layer: [{name: a, type: Tanh, srclayers: $a}]}", "different names"),
    ],
)
def test_a_block_that_is_wrong(block: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read("{name: use, block: x, srclayers: data}", blocks=f"blocks:\n  x: {block}\n")
    assert message in str(error.value)


def test_merge_keys_and_keys_for_anchors() -> None:
    text = f"""{HEAD}
x-store: &store {{path: x, shape: [4], batchsize: 2}}
x-more: &more {{batchsize: 3, shuffle: full}}
neuralnet:
  layer:
    - {{name: data, type: RecordInput, include: train, store_conf: {{path: y, <<: *store}}}}
    - {{name: data, type: RecordInput, include: test, store_conf: {{<<: [*more, *store]}}}}
    - {{name: out, type: Tanh, srclayers: data}}
"""
    layers = loads(text, "j", registries=REGISTRIES).job.neuralnet.layer
    stores: list[Any] = [each.model_dump()["store_conf"] for each in layers[:2]]
    assert [(each["path"], each["batchsize"], each["shuffle"]) for each in stores] == [
        ("y", [2], "none"), ("x", [3], "full"),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="<<: expected a mapping, or a list of mappings"):
        loads(text.replace("<<: *store", "<<: 3"), "j", registries=REGISTRIES)
    with pytest.raises(ConfigError, match="y-store"):
        loads(text.replace("x-more", "y-store"), "j", registries=REGISTRIES)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        # 19 convolutions, and 2 in shortcuts
        ("cifar10/resnet20", {"Convolution": 21, "BatchNorm": 21, "Add": 9, "ReLU": 19}),
        ("char-rnn/transformer", {"MultiHeadAttention": 5, "LayerNorm": 11, "Add": 10, "GELU": 5, "InnerProduct": 11}),
    ],
)
def test_big_nets_in_60_lines(name: str, counts: dict[str, int]) -> None:
    path = ROOT / "configs" / f"{name}.yaml"
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 60
    job = load(path, registries=REGISTRIES)
    layers = job.job.neuralnet.layer
    assert {kind: sum(layer.type == kind for layer in layers) for kind in counts} == counts
    assert loads(job.given(), "again", registries=REGISTRIES).job == job.job
