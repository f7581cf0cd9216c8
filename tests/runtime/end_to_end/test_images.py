"""Jobs that train straight from a folder of PNG files, of any sizes, on two workers, and on augmented images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.data.stores import STORES
from tests.contracts.foreign import png
from tests.runtime.harness import ALLREDUCE, Outcome, dense, mlp


def test_a_job_trains_from_a_folder_of_images(run_job: Callable[..., Outcome], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 160)):
        (tmp_path / name).mkdir()
        for i in range(24):
            size = random.integers(12, 20, 2)
            pixel = random.integers(level, level + 60, (3, *size), np.uint8)
            (tmp_path / name / f"{i}.png").write_bytes(png(pixel))
    job = mlp(cluster=ALLREDUCE, train_steps=20).model_dump(mode="json")
    data = job["neuralnet"]["layer"][0]["store_conf"]
    data |= {"path": str(tmp_path), "backend": "image-folder", "resize": [10, 12], "shape": [3, 10, 12]}
    data |= {"batchsize": [12], "shuffle": "full", "mean_value": 127.5}
    cut = {"name": "cut", "type": "ImagePreprocess", "srclayers": ["data"]}
    job["neuralnet"]["layer"][1:-1] = [
        {**cut, "rgbimage_conf": {"cropsize": 8, "mirror": True}},
        dense("fc2", "cut", 2),
    ]
    losses = run_job(JobConf.model_validate(job)).losses()
    assert list(losses) == list(range(20))
    assert losses[19] < 0.1 < losses[0]


def test_two_workers_train_on_the_augmented_images_of_one(run_job: Callable[..., Outcome], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    records = {"pixel": random.integers(0, 256, (60, 3, 8, 8), np.uint8), "label": np.arange(60, dtype=np.int32) % 2}
    path = str(tmp_path / "images.arrow")
    STORES.find("arrow").write(path, records, block_bytes=1000)
    conf = {"path": path, "backend": "arrow", "shape": [3, 8, 8], "batchsize": [12], "shuffle": "full"}
    conf |= {"mean_value": 127.5, "std_value": 60.0}
    runs = {}
    for name, cluster, augment in (
        ("plain", {}, None),
        ("one", {}, {"rotate": 20, "brightness": 0.5, "noise": 0.1}),
        ("two", ALLREDUCE, {"rotate": 20, "brightness": 0.5, "noise": 0.1}),
    ):
        job = mlp(cluster=cluster, train_steps=8).model_dump(mode="json")
        job["neuralnet"]["layer"][0]["store_conf"] |= {**conf, "augment": augment}
        runs[name] = run_job(JobConf.model_validate(job)).losses()
    # the sums of two gradients are rounded in another way
    assert list(runs["two"].values()) == pytest.approx(list(runs["one"].values()), rel=1e-4)
    assert list(runs["one"].values()) != pytest.approx(list(runs["plain"].values()), rel=0.01)
