"""A job that trains straight from a folder of PNG files, of any sizes, on two workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from singa_dask.conf import JobConf
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
