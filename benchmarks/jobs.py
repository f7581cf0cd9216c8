"""Jobs that the benchmarks run, on records that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import Net, job_on_records, made_records
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
    images, labels = made_records(net)
    np.savez(Path(folder) / "made.npz", images=images, labels=labels)
    convert(ConvertRequest("npz", [f"{folder}/made.npz"], f"{folder}/made.arrow", mean=f"{folder}/mean.arrow"))
    return job_on_records(net, f"{folder}/made.arrow", f"{folder}/mean.arrow")
