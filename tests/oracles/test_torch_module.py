"""TorchModule against the same module trained by PyTorch alone, in float64."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_dask as sd
from tests.oracles import torch_models

torch: Any = pytest.importorskip("torch")

STEPS, ROWS, SEED, RATE = 20, 12, 7, 0.05
PLACE = "tests.oracles.torch_models"


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


def by_torch(module: Any, parts: int = 1, loss: Any = torch.nn.functional.cross_entropy) -> list[float]:
    """Train a module by PyTorch alone; return its losses. ``parts`` computes each batch in equal parts of rows."""
    x, y = records()
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


def test_two_processes(tmp_path: Path) -> None:
    run, losses = train(job("Images", workers=2), tmp_path)
    np.testing.assert_allclose(losses, by_torch(made("Images"), parts=2), rtol=1e-12, atol=1e-12)
    assert len(run.summary["topology"]["processes"]) == 2


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
