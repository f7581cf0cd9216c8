"""TorchModule against the same module trained by PyTorch alone, in float64."""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import singa_dask as sd
from singa_dask.cli import main
from singa_dask.runtime.checkpoints.lookup import load_values
from singa_dask.testing.layer_exam import LAYER_ASPECTS
from singa_dask.training import BP
from tests.net.conftest import feed_layer
from tests.net.jobs import DATA, layer, ready
from tests.oracles import torch_models

torch: Any = pytest.importorskip("torch")

__all__ = ["feed_layer"]

STEPS, ROWS, SEED, RATE = 20, 12, 7, 0.05
PLACE = "tests.oracles.torch_models"
CONF = '{{"torch{0}_conf": {{"{0}": "tests.oracles.torch_models:{1}"}}}}'
TARGETS = '{"torchloss_conf": {"loss": "torch.nn:MSELoss", "target": "data"}}'


def records(n: int = STEPS * ROWS) -> tuple[Any, Any]:
    """Return records (n, 8, 8) in float32, and labels of three classes that depend on them."""
    x = np.random.default_rng(3).normal(size=(n, 8, 8)).astype(np.float32)
    return x, (x.mean((1, 2)) * 20).round().astype(int) % 3


def job(module: str, workers: int = 1, loss: Any = None, **args: Any) -> sd.Job:
    """Return a job of `STEPS` steps, whose metrics are shown after each."""
    conf = {"module": f"{PLACE}:{module}", "args": args, "seed": SEED}
    loss = {"type": "SoftmaxLoss"} if loss is None else {"type": "TorchLoss", "loss": f"{PLACE}:weighed", "args": loss}
    store = {"path": "dask://train", "shape": [8, 8], "batchsize": ROWS}
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=store),
            sd.layer("TorchModule", name="net", torchmodule_conf=conf),
            sd.layer(**loss, name="loss", srclayers=["net", "data"]),
        ]
    )
    rate = {"type": "Fixed", "base_lr": RATE}
    sgd = {"type": "SGD", "momentum": 0.9, "sgd_conf": {"velocity": "gradients"}, "learning_rate": rate}
    cluster = {"nworkers_per_group": workers, "nservers_per_group": workers, "server_worker_separate": False}
    return sd.Job(
        net, name="torch", seed=1, train_steps=STEPS, disp_freq=1, precision="float64", updater=sgd,
        train_one_batch={"alg": "BP"}, cluster=cluster,
    )  # fmt: skip


def train(job: sd.Job, directory: Path, **options: Any) -> tuple[Any, list[float]]:
    """Run a job; return its run, and the loss of each step."""
    run = sd.train(job, data=records(), run_dir=os.fspath(directory), progress=False, **options)
    return run, list(run.history.query("phase == 'train'").loss)


def by_torch(module: Any, parts: int = 1, loss: Any = torch.nn.functional.cross_entropy, y: Any = None) -> list[float]:
    """Train a module by PyTorch alone; return its losses. ``parts`` computes each batch in equal parts of rows."""
    x, labels = records()
    y = labels if y is None else y
    module = module.double().train()
    optimiser = torch.optim.SGD([each for each in module.parameters() if each.requires_grad], RATE, momentum=0.9)
    losses = []
    for step in range(STEPS):
        optimiser.zero_grad()
        total = 0.0
        for part in np.split(np.arange(step * ROWS, (step + 1) * ROWS), parts):
            scores = module(torch.from_numpy(x[part]).double())
            found = loss(scores, torch.from_numpy(y[part])) / parts
            found.backward()
            total += float(found.detach())
        optimiser.step()
        losses.append(total)
    return losses


SGD: dict[str, Any] = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": RATE}}
SGD |= {"momentum": 0.9, "sgd_conf": {"velocity": "gradients"}}


def train_module(made: Any, directory: Path, y: Any = None, **given: Any) -> list[float]:
    """Train a module by `sd.train` without a job; return the loss of each step."""
    x, labels = records()
    keys: dict[str, Any] = {
        "batchsize": ROWS,
        "updater": SGD,
        "train_steps": STEPS,
        "disp_freq": 1,
        "precision": "float64",
    }
    data = (x, labels if y is None else y)
    run = sd.train(made, data=data, run_dir=os.fspath(directory), progress=False, **keys, **given)
    return list(run.history.query("phase == 'train'").loss)


def mean_error(found: Any, wanted: Any) -> Any:
    """Return a loss of its user, of targets."""
    return (found - wanted).abs().mean()


def made(name: str, **args: Any) -> Any:
    """Return a module with the initial values of a script that begins with ``torch.manual_seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return getattr(torch_models, name)(**args)


@pytest.mark.parametrize("name", ["Images", "Words", "Attention", "Tied"])
def test_twenty_steps(name: str, tmp_path: Path) -> None:
    run, losses = train(job(name), tmp_path)
    module = made(name)
    np.testing.assert_allclose(losses, by_torch(module), rtol=1e-12, atol=1e-12)
    model, state = sd.load_model(run.url), module.state_dict()
    x, _ = records()
    module.eval()
    with torch.no_grad():
        wanted = torch.softmax(module(torch.from_numpy(x[:9]).double()), 1).numpy()
    np.testing.assert_allclose(model.predict_proba(x[:9]), wanted, rtol=1e-5)
    assert len(state) > 0


def test_an_onnx_model_predicts_what_the_net_predicts(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    x, y = records()
    data = sd.layer("RecordInput", name="data", store_conf={"path": "dask://train", "shape": [8, 8], "batchsize": ROWS})
    attention = sd.nn.TorchModule(f"{PLACE}:Attention", name="attention", srclayers=["data"])
    heads = sd.nn.TorchModule(f"{PLACE}:Heads", num_outputs=3, named=True, name="heads", srclayers=["data"])
    mixed = sd.nn.TorchModule(f"{PLACE}:Mixed", name="mixed", srclayers=["heads", "heads"])
    added = sd.layer("Add", name="sum", srclayers=["attention", "mixed"])
    loss = sd.layer("SoftmaxLoss", name="loss", srclayers=["sum", "data"])
    job = sd.Job(
        [data, attention, heads, mixed, added, loss],
        name="onnx",
        train_steps=2,
        updater=SGD,
        train_one_batch={"alg": "BP"},
    )
    run = sd.train(job, data=(x, y), run_dir=str(tmp_path / "run"), progress=False)
    file = tmp_path / "net.onnx"
    sd.export(run, file)
    session, model = onnxruntime.InferenceSession(file), sd.load_model(run.url)
    for n in (1, 7):
        (found,) = session.run(None, {"data": x[:n]})
        np.testing.assert_allclose(found, model.predict_proba(x[:n]), atol=1e-5)
    with pytest.raises(sd.ConfigError, match="Choose its layer: attention, heads, mixed"):
        sd.export(run, tmp_path / "net.pt")


def test_pytorch_loads_an_exported_state_dict(tmp_path: Path) -> None:
    run, _ = train(job("Images").replace({"train_steps": 3}), tmp_path / "run")
    sd.export(run, tmp_path / "net.pt")
    state = torch.load(tmp_path / "net.pt", weights_only=True)
    module = torch_models.Images().eval()
    module.load_state_dict(state, strict=True)
    x, _ = records()
    with torch.no_grad():
        wanted = torch.softmax(module(torch.from_numpy(x[:9])), 1).numpy()
    np.testing.assert_allclose(sd.load_model(run.url).predict_proba(x[:9]), wanted, rtol=1e-5)
    assert state["norm.num_batches_tracked"] == 3


def test_what_pytorch_cannot_export_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript")
    run, _ = train(job("Reading").replace({"train_steps": 1}), tmp_path / "run")
    with pytest.raises(sd.ConfigError, match=r"layer 'net', TorchModule: PyTorch cannot export .*:Reading: "):
        sd.export(run, tmp_path / "net.onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(sd.ConfigError, match=r"package onnxscript cannot be imported: .* 'singa-dask\[onnx\]'"):
        sd.export(run, tmp_path / "net.onnx")


@pytest.mark.parametrize(
    "args",
    [
        ("TorchModule", "--shape", "2x8x8", "--conf", CONF.format("module", "Pooled")),
        ("TorchLoss", "--shape", "4x3", "--shape", "4x3", "--conf", CONF.format("loss", "weighed")),
        ("TorchLoss", "--shape", "4x3", "--shape", "4x3", "--conf", TARGETS),
    ],
    ids=["module", "loss of labels", "loss of data"],
)
def test_the_exam_of_layers_is_passed(args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LAYER_ASPECTS, "GPU")  # PyTorch cannot read the memory of a simulated GPU
    result = CliRunner().invoke(main, ["check", *args])
    assert result.exit_code == 0, result.output


def test_a_run_goes_on_with_other_processes(tmp_path: Path) -> None:
    whole, losses = train(job("Numbers"), tmp_path / "whole")
    found, last = list[float](), ""
    for workers, steps in ((1, 7), (2, 14), (1, STEPS)):
        part = job("Numbers", workers).replace({"train_steps": steps, "checkpoint_freq": 7})
        run, shown = train(part, tmp_path / f"to{steps}", resume=last or False)
        assert len(run.summary["topology"]["processes"]) == workers
        found, last = found + shown, run.url
    np.testing.assert_allclose(found, losses, rtol=1e-12)
    wanted, values = (load_values(each) for each in (whole.url, last))
    assert values.keys() == wanted.keys()
    for name, stored in values.items():
        np.testing.assert_allclose(stored.values, wanted[name].values, rtol=0, atol=1e-12)


def test_two_processes(tmp_path: Path) -> None:
    run, losses = train(job("Images", workers=2), tmp_path)
    np.testing.assert_allclose(losses, by_torch(made("Images"), parts=2), rtol=1e-12, atol=1e-12)
    assert len(run.summary["topology"]["processes"]) == 2


def test_gradients_leave_while_the_module_runs_backward() -> None:
    net = ready(
        [
            DATA,
            layer("net", "TorchModule", "data", torchmodule_conf={"module": f"{PLACE}:Layers"}),
            layer("loss", "SoftmaxLoss", "net", "data"),
        ]
    )
    module: Any = net.name2layer("net")
    events: list[str] = []
    module.module.first.weight.register_hook(lambda _: events.append("first layer"))
    BP(net, update=lambda step, param: events.append(param.name)).train_one_batch(0)
    assert events.index("net.last.weight") < events.index("first layer")
    assert sorted(events) == sorted(["first layer", *(param.name for param in net.params)])


def test_a_gradient_in_parts_is_refused() -> None:
    checkpointed = {"module": f"{PLACE}:Layers", "args": {"reentrant": True}}
    net = ready(
        [
            DATA,
            layer("net", "TorchModule", "data", torchmodule_conf=checkpointed),
            layer("loss", "SoftmaxLoss", "net", "data"),
        ]
    )
    with pytest.raises(RuntimeError, match=r"gradient of first\.(bias|weight) in several parts"):
        BP(net).train_one_batch(0)


def test_a_function_makes_the_module(tmp_path: Path) -> None:
    _, losses = train(job("images", width=2), tmp_path)
    np.testing.assert_allclose(losses, by_torch(made("Images", width=2)), rtol=1e-12, atol=1e-12)


def test_dropout_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, losses = train(job("Images", dropout=0.5), tmp_path / "whole")
    half = job("Images", dropout=0.5).replace({"train_steps": STEPS // 2, "checkpoint_freq": STEPS // 2})
    first, begun = train(half, tmp_path / "half")
    rest, continued = train(job("Images", dropout=0.5), tmp_path / "rest", resume=first.url)
    assert begun + continued == losses
    assert len(set(losses)) == STEPS
    params = [sd.load_model(each.url).extract(records(9)[0], "net") for each in (whole, rest)]
    np.testing.assert_array_equal(*params)


@pytest.mark.parametrize("args", [{}, {"more": 3.0}])
def test_a_loss_of_its_user(args: dict[str, float], tmp_path: Path) -> None:
    _, losses = train(job("Images", loss=args), tmp_path)
    wanted = by_torch(made("Images"), loss=partial(torch_models.weighed, **args))
    np.testing.assert_allclose(losses, wanted, rtol=1e-12, atol=1e-12)


def test_a_module_that_cannot_be_made_is_named_with_its_place() -> None:
    with pytest.raises(sd.ConfigError, match=r"layer\[net\]\.torchmodule_conf\.module: .*missing 1 required .*'width'"):
        job("images").nets()


@pytest.mark.parametrize(
    ("loss", "oracle"),
    [
        ("cross_entropy", torch.nn.functional.cross_entropy),
        (torch.nn.CrossEntropyLoss, torch.nn.functional.cross_entropy),
        (torch_models.weighed, torch_models.weighed),
        (sd.nn.TorchLoss(torch_models.weighed, more=3.0), partial(torch_models.weighed, more=3.0)),
    ],
    ids=["name", "class", "function", "layer"],
)
def test_a_module_is_trained_without_a_job(loss: Any, oracle: Any, tmp_path: Path) -> None:
    losses = train_module(torch_models.Numbers, tmp_path, loss=loss)
    np.testing.assert_allclose(losses, by_torch(torch_models.Numbers(), loss=oracle), rtol=1e-12)


@pytest.mark.parametrize(
    "door",
    [
        lambda made, x, y: sd.train(made, data=(x, y), loss="cross_entropy"),
        lambda made, x, y: sd.Net([made]),
        lambda made, x, y: sd.nn.TorchModule(made),
        lambda made, x, y: sd.SingaClassifier(module=made).fit(x, y),
    ],
    ids=["train", "net", "layer", "estimator"],
)
def test_a_module_object_is_refused_with_what_to_pass(door: Any) -> None:
    needed = "a function that creates it, calls load_state_dict for its values, and returns it."
    with pytest.raises(sd.ConfigError, match=re.escape(f"so pass its class, Numbers, or {needed}")):
        door(torch_models.Numbers(), *records())
    with pytest.raises(sd.ConfigError, match=re.escape(f"so pass {needed}")):
        door(torch.nn.Linear(64, 3), *records())


def test_a_function_loads_the_values_of_a_module(tmp_path: Path) -> None:
    module, file = torch_models.Numbers(start=5), tmp_path / "numbers.pt"
    torch.save(module.state_dict(), file)
    layer = sd.nn.TorchModule(torch_models.loaded, file=str(file))
    losses = train_module(layer, tmp_path / "run", loss="cross_entropy")
    np.testing.assert_allclose(losses, by_torch(module), rtol=1e-12)


@pytest.mark.parametrize("loss", ["mse", mean_error])
def test_a_module_is_trained_on_targets(loss: Any, tmp_path: Path) -> None:
    y = records()[0].mean(2)[:, :2]
    layer = sd.nn.TorchModule(torch_models.Numbers, outputs=2, start=4)
    losses = train_module(layer, tmp_path, y, loss=loss)
    oracle = torch.nn.functional.mse_loss if loss == "mse" else loss
    wanted = by_torch(torch_models.Numbers(outputs=2, start=4), loss=oracle, y=y.astype(np.float64))
    np.testing.assert_allclose(losses, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": torch.nn.CrossEntropyLoss()}, "Pass the class of the loss"),
        ({"loss": "mse"}, "loss 'mse' needs floats as y, but y has integers or texts"),
        ({"loss": "crossentropy"}, "unknown loss 'crossentropy'. Expected cross_entropy or mse"),
        ({"loss": None}, "loss is missing"),
        ({"test_freq": 5}, "test_freq needs records to test with"),
        ({"epocs": 3}, "epocs: unknown key. Did you mean 'epochs'?"),
        ({"loss": "mse", "y": np.zeros(STEPS * ROWS), "made": torch_models.Flat}, "Using a target size"),
    ],
)
def test_what_cannot_be_trained_without_a_job(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"made": torch_models.Numbers, "loss": "cross_entropy", **given}
    with pytest.raises(sd.ConfigError, match=re.escape(message)):
        train_module(directory=tmp_path, **given)


def test_a_module_is_tested_while_it_is_trained(tmp_path: Path) -> None:
    x, y = records()
    still = {"type": "SGD", "learning_rate": 0}
    data = {"train": (x, y), "test": (x[:ROWS], y[:ROWS])}
    keys: dict[str, Any] = {
        "batchsize": ROWS,
        "updater": still,
        "train_steps": 1,
        "test_freq": 1,
        "precision": "float64",
    }
    made = sd.nn.TorchModule(torch_models.Numbers, start=3)
    run = sd.train(made, data=data, loss="cross_entropy", run_dir=str(tmp_path), progress=False, **keys)
    with torch.no_grad():
        scores = torch_models.Numbers(start=3).double()(torch.from_numpy(x[:ROWS]).double())
        wanted = float(torch.nn.functional.cross_entropy(scores, torch.from_numpy(y[:ROWS])))
    np.testing.assert_allclose(run.history.query("phase == 'test'").loss, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("named", "workers", "apart"),
    [(False, 1, False), (True, 1, False), (False, 2, False), (False, 2, True)],
    ids=["tuple", "dict", "by records", "by layers"],
)
def test_each_reader_gets_an_output(named: bool, workers: int, apart: bool, tmp_path: Path) -> None:
    whole = job("Numbers", workers)
    heads = {"module": f"{PLACE}:Heads", "args": {"named": named}, "num_outputs": 3}
    layers = [each.model_dump(exclude_unset=True) for each in whole.conf.neuralnet.layer]
    layers[1]["torchmodule_conf"] = heads
    layers.insert(2, sd.layer("TorchModule", name="mixed", module=torch_models.Mixed, srclayers=["net", "net"]))
    layers[3]["srclayers"] = ["mixed", "data"]
    if apart:
        for layer, place in zip(layers, (0, 0, 1, 1), strict=True):
            layer["location"] = place
    keys = whole.conf.model_dump(exclude_unset=True, exclude={"neuralnet"})
    _, losses = train(sd.Job(layers, **keys), tmp_path)
    wanted = by_torch(torch_models.Whole(), parts=1 if apart else workers)
    np.testing.assert_allclose(losses, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("module", "conf", "message"),
    [
        ("Heads", {}, "Heads returns 3 tensors. Set num_outputs: 3."),
        ("Heads", {"num_outputs": 2}, "Heads returns 3 tensors. Set num_outputs: 3."),
        ("Numbers", {"num_outputs": 2}, "Numbers returns one tensor. Leave num_outputs out."),
    ],
)
def test_another_number_of_outputs(module: str, conf: dict[str, Any], message: str) -> None:
    wrong = job(module).replace({f"neuralnet.layer[net].torchmodule_conf.{key}": value for key, value in conf.items()})
    with pytest.raises(sd.ConfigError, match=re.escape(message)):
        wrong.nets()


def test_a_module_that_reads_values(tmp_path: Path) -> None:
    _, losses = train(job("Reading"), tmp_path)
    np.testing.assert_allclose(losses, by_torch(torch_models.Reading()), rtol=1e-12)


def test_values_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    begin = torch_models.Numbers.__init__

    def count(self: Any, **given: Any) -> None:
        begin(self, **given)
        built.append(self.first.weight.device.type)

    monkeypatch.setattr(torch_models.Numbers, "__init__", count)
    job("Numbers").nets()
    assert set(built) == {"meta"}
    train(job("Numbers"), tmp_path)
    assert built.count("cpu") == 1
