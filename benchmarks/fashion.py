"""How long a job waits for records on HDFS: an epoch of Fashion-MNIST, as a share of the time of its steps.

The data are those of Debian's package dataset-fashion-mnist (``apt-get install dataset-fashion-mnist``), or the same
four IDX files elsewhere. They are converted to arrow on a real HDFS on this machine.
``python -m benchmarks.fashion [--data FOLDER] [--epochs N]``
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.jobs import ROOT
from singa_dask import fs
from singa_dask.conf import load
from singa_dask.data.convert import ConvertRequest, convert
from singa_dask.runtime import Driver, JobRun, Result, plan_processes
from singa_dask.runtime.job.client.job_cluster import embedded_cluster
from tests.hdfs.cluster import MiniHdfs

FOLDER = "/usr/share/datasets/fashion-mnist"
STORES = {"train": "train", "test": "t10k"}
RECORDS, BATCH = 60_000, 100


def run(urls: dict[str, str], folder: str, shuffle: str, epochs: int) -> Result:
    """Train configs/fashion/mlp.yaml on the stores at some URLs, with a test at the end."""
    steps = epochs * RECORDS // BATCH
    sets = [f"neuralnet.layer[{i}].store_conf.path={url}" for i, url in enumerate(urls.values())]
    sets += [f"neuralnet.layer[0].store_conf.shuffle={shuffle}"]
    sets += [f"train_steps={steps + 1}", f"test_freq={steps}", "checkpoint_freq=0"]
    job = load(ROOT / "configs/fashion/mlp.yaml", sets).job
    url = fs.join(folder, shuffle)
    fs.makedirs(url)
    with embedded_cluster(plan_processes(job.cluster)) as client:
        return Driver(
            JobRun.of(job, run_url=url, job_id=f"fashion-{shuffle}"), client, on_event=lambda event: None
        ).run()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=FOLDER)
    parser.add_argument("--epochs", type=int, default=1)
    given = parser.parse_args()
    if not Path(given.data).is_dir():
        parser.error(f"{given.data}: no such folder. apt-get install dataset-fashion-mnist, or give --data.")
    print(f"Fashion-MNIST, MLP 784-512-256-10, batch {BATCH}, {given.epochs} epoch(s), one worker")
    with tempfile.TemporaryDirectory() as folder, MiniHdfs(Path(folder) / "cluster") as mini:
        urls = {name: fs.join(mini.url, "fashion", f"{name}.arrow") for name in STORES}
        for name, prefix in STORES.items():
            files = [f"{given.data}/{prefix}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
            convert(ConvertRequest("idx", files, urls[name]))
        for shuffle in ("none", "block"):
            result = run(urls, fs.join(mini.url, "runs"), shuffle, given.epochs)
            step_ms = 1e3 * BATCH / result.samples_per_s
            print(
                f"shuffle {shuffle:6} step {step_ms:5.2f} ms, waits for data {result.wait_ms['data']:6.4f} ms "
                f"({result.wait_ms['data'] / step_ms:.2%})   {result.samples_per_s:6.0f} records/s"
                f"   test accuracy {result.test['accuracy']:.3f}"
            )


if __name__ == "__main__":
    main()
