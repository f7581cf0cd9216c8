"""Jobs that the benchmarks run, on records that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import Net, trained_layers
from singa_dask.conf import JobConf, load
from singa_dask.data.convert import ConvertRequest, convert

__all__ = ["BATCH", "ROOT", "WIDTHS", "job_on_made_records", "mnist_mlp"]

ROOT = Path(__file__).parents[1]
BATCH = 64
WIDTHS = (784, 2500, 2000, 1500, 1000, 500, 10)


def mnist_mlp(folder: str, steps: int, momentum: float = 0.0, cluster: dict[str, Any] | None = None) -> JobConf:
    """Return configs/mnist/mlp.yaml on made-up digits in ``folder``, without tests."""
    path = Path(folder) / "digits.arrow"
    if not path.exists():
        random = np.random.default_rng(0)
        np.savez(
            Path(folder) / "digits.npz",
            images=random.integers(0, 256, (2048, 28, 28), np.uint8),
            labels=random.integers(0, 10, 2048).astype(np.uint8),
        )
        convert(ConvertRequest("npz", [f"{folder}/digits.npz"], str(path)))
    job = load(str(ROOT / "configs/mnist/mlp.yaml")).job.model_dump(mode="json")
    layers = job["neuralnet"]["layer"]
    layers[0]["store_conf"].update(path=str(path), random_skip=0)
    layers[0]["store_conf"]["batchsize"] = [BATCH]
    del layers[1]
    job.update(threads=1, train_steps=steps, disp_freq=0, test_freq=0, test_steps=0, cluster=cluster or {})
    job["updater"]["momentum"] = momentum
    return JobConf.model_validate(job)


def job_on_made_records(net: Net, folder: str) -> dict[str, Any]:
    """Return the job of a net on made-up records in ``folder``, ten batches of them, without tests."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (10 * net.n_rows, *net.shape), np.uint8)
    labels = random.integers(0, net.n_classes, len(images)).astype(np.int32)
    np.savez(Path(folder) / "made.npz", images=images, labels=labels)
    convert(ConvertRequest("npz", [f"{folder}/made.npz"], f"{folder}/made.arrow", mean=f"{folder}/mean.arrow"))
    store = {"path": f"{folder}/made.arrow", "mean_file": f"{folder}/mean.arrow", "std_value": 64}
    store |= {"batchsize": net.n_rows, "shape": list(net.shape)}
    data = {"name": "data", "type": "RecordInput", "store_conf": store}
    given = net.job()
    # what is to be learnt from these records makes no difference to the time of a step
    updater = {**given["updater"], "learning_rate": {"type": "Fixed", "base_lr": 1e-5}}
    layers = {"neuralnet": {"layer": [data, *trained_layers(net)]}}
    return {"name": given["name"], "train_steps": 0, "train_one_batch": {"alg": "BP"}, "updater": updater, **layers}
