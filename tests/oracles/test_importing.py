"""Weights of PyTorch modules: imported, a net computes what the module computes, or the import is refused."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import singa_dask as sd
from singa_dask.conf import Phase
from singa_dask.errors import ConfigError, DataError
from singa_dask.layers import LAYERS
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.exports.nets import by_record
from tests.net.feed import Feed
from tests.net.jobs import job, layer, ready

torch = pytest.importorskip("torch")
nn: Any = torch.nn
Layers = list[dict[str, Any]]
N, STEPS, WIDTH = 4, 5, 16


@pytest.fixture(autouse=True)
def known_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYERS._classes, "Feed", Feed)


def feed(name: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "type": "Feed", "user_conf": {"shape": [N, *shape], "classes": 3}}


def dense(name: str, source: str, n: int) -> dict[str, Any]:
    return layer(name, "InnerProduct", source, innerproduct_conf={"num_output": n})


# -- a residual net ------------------------------------------------------------------------------------------


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.bn2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out)
        if stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (self.shortcut(x) if hasattr(self, "shortcut") else x)).relu()


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 8, 1), Block(8, 16, 2))
        self.fc = nn.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        return self.fc(self.blocks(self.bn(self.conv(x)).relu()).mean((2, 3)))


def filters(name: str, norm: str, source: str, n: int, kernel: int = 3, stride: int = 1) -> Layers:
    conf = {"num_filters": n, "kernel": kernel, "stride": stride, "pad": kernel // 2, "bias_term": False}
    return [layer(name, "Convolution", source, convolution_conf=conf), layer(norm, "BatchNorm", name)]


def residual() -> Layers:
    layers = [feed("x", 3, 6, 6), *filters("conv", "bn", "x", 8), layer("relu", "ReLU", "bn")]
    source = "relu"
    for k, (n, stride) in enumerate([(8, 1), (8, 1), (16, 2)]):
        at = f"blocks.{k}."
        layers += filters(f"{at}conv1", f"{at}bn1", source, n, stride=stride)
        layers.append(layer(f"{at}relu", "ReLU", f"{at}bn1"))
        layers += filters(f"{at}conv2", f"{at}bn2", f"{at}relu", n)
        if stride > 1:
            layers += filters(f"{at}shortcut.0", f"{at}shortcut.1", source, n, 1, stride)
        layers.append(layer(f"{at}sum", "Add", f"{at}bn2", f"{at}shortcut.1" if stride > 1 else source))
        layers.append(layer(source := f"{at}out", "ReLU", f"{at}sum"))
    pool = layer("pool", "AdaptivePooling", source, adaptivepooling_conf={"height": 1, "width": 1, "pool": "AVG"})
    return [*layers, pool, dense("fc", "pool", 3)]


# -- a table with categories -----------------------------------------------------------------------------------


class Table(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(7, 4), nn.Embedding(7, 4), nn.Embedding(9, 4)])
        self.body = nn.Sequential(nn.Linear(18, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.more = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: Any, *numbers: Any) -> Any:
        rows = [table(each.long()[:, 0]) for table, each in zip(self.embeddings, numbers, strict=True)]
        return self.more(self.body(torch.cat([x, *rows], 1)))


def table() -> Layers:
    return [
        feed("x", 6),
        *(feed(f"n{k}", 1) for k in range(3)),
        *(
            layer(f"embeddings.{k}", "Embedding", f"n{k}", embedding_conf={"vocab_size": n, "feature_dim": 4})
            for k, n in enumerate((7, 7, 9))
        ),
        layer("all", "Concate", "x", *(f"embeddings.{k}" for k in range(3)), concate_conf={"concate_dim": 1}),
        dense("body.0", "all", 16),
        layer("body.1", "BatchNorm", "body.0"),
        layer("relu1", "ReLU", "body.1"),
        dense("more.0", "relu1", 16),
        layer("more.1", "BatchNorm", "more.0"),
        layer("relu2", "ReLU", "more.1"),
        dense("more.3", "relu2", 3),
    ]


# -- a transformer -----------------------------------------------------------------------------------------------


class Transformer(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, WIDTH), nn.Embedding(STEPS, WIDTH)
        more = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(WIDTH, 2, 32, **more) for _ in range(2)])
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, numbers: Any) -> Any:
        padding = numbers == 0
        x = self.words(numbers.long()) + self.places.weight
        for each in self.layers:
            x = each(x, src_key_padding_mask=padding)
        valid = (~padding).float()[:, :, None]
        return self.head((x * valid).sum(1) / valid.sum(1))


def transformer() -> Layers:
    embedded = {"vocab_size": 20, "feature_dim": WIDTH}
    layers = [
        feed("x", STEPS),
        layer("mask", "PaddingMask", "x", paddingmask_conf={"padding": 0}),
        layer("words", "Embedding", "x", embedding_conf=embedded),
        layer("places", "PositionalEmbedding", "words", positionalembedding_conf={"max_length": STEPS}),
    ]
    source = "places"
    for k in range(2):
        at = f"layers.{k}."
        layers += [
            layer(f"{at}norm1", "LayerNorm", source),
            layer(
                f"{at}self_attn", "MultiHeadAttention", f"{at}norm1", "mask", multiheadattention_conf={"num_heads": 2}
            ),
            layer(f"{at}sum1", "Add", source, f"{at}self_attn"),
            layer(f"{at}norm2", "LayerNorm", f"{at}sum1"),
            dense(f"{at}linear1", f"{at}norm2", 32),
            layer(f"{at}relu", "ReLU", f"{at}linear1"),
            dense(f"{at}linear2", f"{at}relu", WIDTH),
            layer(source := f"{at}sum2", "Add", f"{at}sum1", f"{at}linear2"),
        ]
    layers = [{**each, "unroll_len": STEPS} if each["name"] != "x" else each for each in layers]
    return [
        *layers,
        layer("pool", "TimePooling", source, "mask", timepooling_conf={"pool": "AVG"}),
        dense("head", "pool", 3),
    ]


# -- the tests ---------------------------------------------------------------------------------------------------

NETS = {"residual": (Residual, residual), "table": (Table, table), "transformer": (Transformer, transformer)}


def drawn(kind: type) -> Any:
    """Return a module with random params and statistics."""
    torch.manual_seed(1)
    module = kind().eval()
    for each in module.state_dict().values():
        if each.is_floating_point():
            each.copy_(
                torch.rand_like(each) + 0.5 if each.ndim < 2 else torch.randn_like(each) / each[0].numel() ** 0.5
            )
    return module


def inputs_of(layers: Layers) -> dict[str, Any]:
    random, found = np.random.default_rng(2), {}
    for each in (each for each in layers if each["type"] == "Feed"):
        shape, is_numbers = each["user_conf"]["shape"], each["name"] != "x" or each["user_conf"]["shape"][1] == STEPS
        found[each["name"]] = random.integers(0, 7, shape) if is_numbers else random.normal(size=shape)
    if found["x"].shape[1:] == (STEPS,):
        found["x"] = np.where(np.arange(STEPS) < random.integers(2, STEPS + 1, (N, 1)), found["x"] + 1, 0)
    return {name: values.astype(np.float32) for name, values in found.items()}


def assert_equal(layers: Layers, module: Any, url: str) -> None:
    """Compare the last layer's output with the module's."""
    values, inputs = load_values(url), inputs_of(layers)
    net = ready(layers)
    for owner in net.owners:
        owner.data[...] = values[owner.name].values.reshape(owner.shape)
    for each in net.layers:
        if each.conf_name in inputs:
            each.features[0].data[...] = inputs[each.conf_name]
        else:
            each.prepare(Phase.TEST | Phase.FORWARD)
            each.forward(Phase.TEST | Phase.FORWARD)
    with torch.no_grad():
        wanted = module(*map(torch.from_numpy, inputs.values())).numpy()
    last = [each for each in net.layers if each.conf_name == layers[-1]["name"]]
    np.testing.assert_allclose(by_record(last), wanted, rtol=1e-5, atol=1e-5)


def renamed(layers: Layers) -> Layers:
    """Return the layers with names that say nothing of the module's."""
    names = {each["name"]: each["name"] if each["type"] == "Feed" else f"l{k}" for k, each in enumerate(layers)}
    return [
        {**each, "name": names[each["name"]], "srclayers": [names[name] for name in each.get("srclayers", [])]}
        for each in layers
    ]


def holder(layers: Layers) -> Any:
    return SimpleNamespace(conf=job(layers))


@pytest.mark.parametrize("name", NETS)
def test_the_names_of_the_module(name: str, tmp_path: Path) -> None:
    kind, build = NETS[name]
    module, layers = drawn(kind), build()
    assert_equal(layers, module, sd.import_weights(module, holder(layers), tmp_path / "out"))


@pytest.mark.parametrize("name", NETS)
def test_other_names_are_refused_and_the_order_of_the_state_dict_is_proposed(name: str, tmp_path: Path) -> None:
    kind, build = NETS[name]
    module, layers = drawn(kind), renamed(build())
    torch.save(module.state_dict(), tmp_path / "x.pt")
    with pytest.raises(ConfigError, match=r"\d+ of \d+ arrays are ambiguous") as caught:
        sd.import_weights(tmp_path / "x.pt", holder(layers), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    text = str(caught.value).partition("(Python: map=)\n")[2]
    assert "num_batches" not in text
    (tmp_path / "map.yaml").write_text(re.sub("(?m)^# ", "", text))
    url = sd.import_weights(tmp_path / "x.pt", holder(layers), tmp_path / "out", tmp_path / "map.yaml")
    assert_equal(layers, module, url)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_nets(kind: str, tmp_path: Path) -> None:
    class Both(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 6)
            self.rnn = getattr(nn, kind)(6, 4, bidirectional=True, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, numbers: Any) -> Any:
            return self.head(self.rnn(self.words(numbers.long()))[0].mean(1))

    module, block = drawn(Both), f"{kind.lower()}_conf"
    layers = [
        feed("x", STEPS),
        layer("e", "Embedding", "x", embedding_conf={"vocab_size": 20, "feature_dim": 6}, unroll_len=STEPS),
        layer("back", kind, "e", unroll_len=STEPS, **{block: {"dim_hidden": 4, "reverse": True}}),
        layer("forth", kind, "e", unroll_len=STEPS, **{block: {"dim_hidden": 4}}),
        layer("both", "Concate", "forth", "back", concate_conf={"concate_dim": 1}, unroll_len=STEPS),
        layer("pool", "TimePooling", "both", timepooling_conf={"pool": "AVG"}),
        dense("out", "pool", 3),
    ]
    if kind == "GRU":
        # PyTorch's bias_hh of the candidate has no counterpart
        with pytest.raises(ConfigError, match=r"missing params: back.W_z, .*\n.*unused arrays: rnn.weight_ih_l0"):
            sd.import_weights(module, holder(layers), tmp_path / "out")
        module.rnn.bias_hh_l0.data[8:] = module.rnn.bias_hh_l0_reverse.data[8:] = 0
    assert_equal(layers, module, sd.import_weights(module, holder(layers), tmp_path / "out"))


def test_files_of_pytorch(tmp_path: Path) -> None:
    layers = [feed("x", 6), dense("fc", "x", 3)]
    module = nn.Sequential(nn.Linear(6, 3)).bfloat16()
    torch.save(module.state_dict(), tmp_path / "x.pth")
    for source in (tmp_path / "x.pth", module, module.state_dict(), dict(module.named_parameters())):
        url = sd.import_weights(source, holder(layers), tmp_path / str(id(source)))
        np.testing.assert_array_equal(load_values(url)["fc.weight"].values, module[0].weight.detach().float().numpy())
    torch.save({"epoch": 3, "model": module.state_dict()}, tmp_path / "x.pt")
    with pytest.raises(DataError, match="it is not a state dict of tensors by name, but has dicts: model"):
        sd.import_weights(tmp_path / "x.pt", holder(layers), tmp_path / "out")
