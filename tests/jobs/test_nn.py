"""Nets of typed layers: what `nn` returns, `Sequential` beside the blocks of a job file, and what type checkers say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import singa_dask as sd
from singa_dask import nn
from singa_dask.conf import Phase
from singa_dask.layers import LAYERS
from singa_dask.layers.activation import Tanh
from tests.jobs.conftest import KEYS, ROOT

EXAMPLE = ROOT / "examples" / "residual.py"


@pytest.fixture
def own() -> Iterator[type[sd.Layer]]:
    """Register a layer of a user's own."""

    @LAYERS.register("Own")
    class Own(Tanh):
        """y = tanh(x), of our own."""

    yield Own
    LAYERS.forget([__name__])


def test_functions_return_what_layer_returns() -> None:
    layers = [nn.InnerProduct(10, name="fc"), nn.ReLU(), nn.AdaptivePooling(4, 5), nn.AdaptivePooling(4, width=5)]
    pooling = sd.layer("AdaptivePooling", height=4, width=5)
    assert layers == [sd.layer("InnerProduct", num_output=10, name="fc"), sd.layer("ReLU"), pooling, pooling]
    assert nn.CudnnConv(3) == sd.layer("CudnnConv", num_filters=3)
    assert set(dir(nn)) == set(LAYERS.names())
    assert "cross entropy" in str(nn.SoftmaxLoss.__doc__)


def test_a_layer_of_a_users_own(own: type[sd.Layer]) -> None:
    made = getattr(nn, "Own")  # noqa: B009 - the stub has no such function
    assert made(name="a") == {"type": "Own", "name": "a"}
    assert made.__doc__ == own.__doc__
    assert sd.Net([made(), made()])["layer"][1] == {"name": "own2", "type": "Own", "srclayers": ["own"]}


def test_what_functions_refuse() -> None:
    some: Any = nn
    with pytest.raises(AttributeError, match=r"there is no layer type 'Convolutoin'\. Did you mean 'Convolution'"):
        _ = some.Convolutoin
    with pytest.raises(TypeError, match=r"InnerProduct\(\) takes num_output alone by position, got 2 values"):
        some.InnerProduct(10, True)
    with pytest.raises(TypeError, match=r"ReLU\(\) takes none of its keys by position, got 1 values"):
        some.ReLU(0.1)
    with pytest.raises(sd.ConfigError, match=r"num_output is given as a keyword and in innerproduct_conf\."):
        sd.nn.InnerProduct(10, innerproduct_conf={"num_output": 20})
    split = sd.nn.Split(num_splits=2, split_conf={"split_num": 3})
    with pytest.raises(sd.ConfigError, match=r"num_splits and split_num are two names of the same key\."):
        sd.Job([sd.nn.Dummy(name="x", input=True, shape=[2, 3]), split])
    with pytest.raises(TypeError, match="multiple values for keyword argument 'num_output'"):
        some.InnerProduct(10, num_output=3)


# -- Sequential ----------------------------------------------------------------------------------------

BLOCKS = """
neuralnet:
  layer:
    - {name: data, type: RecordInput, store_conf: {path: x, batchsize: 4, shape: [3, 8, 8]}}
    - {name: stem, block: filter, srclayers: data, values: {n: 6}}
    - {name: body, block: residual, srclayers: stem, values: {n: 6}, repeat: 2}
    - {name: both, block: gate, srclayers: [body, stem]}
    - {name: fc, type: InnerProduct, srclayers: both, innerproduct_conf: {num_output: 2}}
    - {name: loss, type: SoftmaxLoss, srclayers: [fc, data]}
blocks:
  filter:
    values: {n: null}
    layer:
      - name: convolution
        type: Convolution
        srclayers: $in
        convolution_conf: {num_filters: $n, kernel: 3, pad: 1}
        param: [{name: w, init: {type: Constant, value: 1.5}}, {name: b}]
      - {name: batchnorm, type: BatchNorm, srclayers: convolution}
  residual:
    values: {n: null}
    layer:
      - {name: first, block: filter, srclayers: $in, values: {n: $n}}
      - {name: relu, type: ReLU, srclayers: first}
      - {name: second, block: filter, srclayers: relu, values: {n: $n}}
      - {name: add, type: Add, srclayers: [second, $in]}
  gate:
    inputs: [x, gate]
    output: product
    layer:
      - {name: sigmoid, type: Sigmoid, srclayers: $gate}
      - {name: product, type: Multiply, srclayers: [$x, sigmoid]}
      - {name: unread, type: Tanh, srclayers: product}
"""


def filters(n: int, **keys: Any) -> sd.Sequential:
    params = [{"name": "w", "init": {"type": "Constant", "value": 1.5}}, {"name": "b"}]
    return sd.Sequential(nn.Convolution(n, kernel=3, pad=1, param=params), nn.BatchNorm(), **keys)


def residual(n: int, **keys: Any) -> sd.Sequential:
    add = nn.Add(srclayers=["second", "$in"])
    return sd.Sequential(filters(n, name="first"), nn.ReLU(), filters(n, name="second"), add, **keys)


def layers_of(*parts: Any) -> list[dict[str, Any]]:
    layers: list[dict[str, Any]] = sd.Net(parts)["layer"]
    return layers


def test_blocks_of_a_file_and_of_python_are_the_same_layers(tmp_path: Path) -> None:
    gate = sd.Sequential(
        nn.Sigmoid(srclayers="$gate"),
        nn.Multiply(name="product", srclayers=["$x", "sigmoid"]),
        nn.Tanh(name="unread"),
        name="both",
        srclayers=["body", "stem"],
        inputs=["x", "gate"],
        output="product",
    )
    net = sd.Net(
        [
            nn.RecordInput(name="data", path="x", batchsize=4, shape=[3, 8, 8]),
            filters(6, name="stem"),
            residual(6, name="body", repeat=2),
            gate,
            nn.InnerProduct(2, name="fc"),
            nn.SoftmaxLoss(name="loss", srclayers=["fc", "data"]),
        ]
    )
    job = sd.Job(net, train_steps=6, **KEYS)
    path = tmp_path / "job.yaml"
    rest = {**KEYS, "train_steps": 6}
    path.write_text(BLOCKS + "\n".join(f"{key}: {json.dumps(value)}" for key, value in rest.items()))
    assert sd.load(path).conf == job.conf
    assert len(job.conf.neuralnet.layer) == 1 + 2 + 2 * 6 + 3 + 2


def test_the_parts_of_a_net_read_each_other_in_a_row() -> None:
    hidden = sd.Sequential(nn.InnerProduct(4), nn.ReLU())
    layers = layers_of(nn.Dummy(), hidden, hidden, nn.Tanh())
    assert [(each["name"], each.get("srclayers")) for each in layers] == [
        ("dummy", None),
        ("sequential.innerproduct", ["dummy"]),
        ("sequential.relu", ["sequential.innerproduct"]),
        ("sequential2.innerproduct", ["sequential.relu"]),
        ("sequential2.relu", ["sequential2.innerproduct"]),
        ("tanh", ["sequential2.relu"]),
    ]


def test_what_a_sequential_refuses() -> None:
    for parts, words in (
        ([nn.Dummy(), sd.Sequential(nn.ReLU(srclayers="$out"))], "has no input and no value 'out'"),
        ([nn.Dummy(), sd.Sequential(nn.ReLU(), output="rely")], "has no layer 'rely'. Did you mean 'relu'"),
        ([nn.Dummy(), sd.Sequential(name="a")], "'a': expected a list of layers"),
        ([nn.Dummy(), sd.Sequential(nn.ReLU(), inputs=["x", "y"])], "reads 1 layers, expected 2 in srclayers: x, y"),
        (
            [sd.Sequential(nn.ReLU(), name="a", srclayers="x", repeat=0)],
            "repeat 0. Expected a whole number of at least 1",
        ),
    ):
        with pytest.raises(sd.ConfigError, match=words):
            sd.Net(parts)


# -- types ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_stub_is_what_the_command_prints() -> None:
    # in a process of its own: other tests register layers
    command = [sys.executable, "-m", "singa_dask", "schema", "--stub"]
    printed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert (ROOT / "singa_dask/jobs/nn.pyi").read_text() == printed, "singa-dask schema --stub > singa_dask/jobs/nn.pyi"


def test_the_example_is_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    namespace: dict[str, Any] = {"__name__": "residual"}
    exec(compile(EXAMPLE.read_text(), str(EXAMPLE), "exec", dont_inherit=True), namespace)
    net = namespace["job"].nets()[Phase.TRAIN]
    assert [each.name for each in net.layers if each.traits.params and each.params][-2:] == [
        "block.2.second.batchnorm",
        "scores",
    ]


@pytest.mark.soak
def test_mypy_takes_the_example_and_finds_mistakes(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from singa_dask import nn\n\n"
        "nn.Convolution(8, kernal=3)\n"
        'nn.InnerProduct("8")\n'
        "nn.Convolutoin(8)\n"
        "nn.InnerProduct()\n"
        "nn.ReLU(nam='a')\n"
    )
    command = [sys.executable, "-m", "mypy"]  # strict, and with a cache, by pyproject.toml
    checked = subprocess.run([*command, str(EXAMPLE), str(wrong)], capture_output=True, text=True, cwd=ROOT)
    found = [line.partition(": error: ")[0] for line in checked.stdout.splitlines() if ": error: " in line]
    # the cache may know the same file in the directory of another run
    assert [Path(place).name for place in found] == [f"{wrong.name}:{line}" for line in (3, 4, 5, 6, 7)], (
        checked.stdout + checked.stderr
    )
