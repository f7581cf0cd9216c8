"""What `benchmarks.dataframe` compares, each in a process of its own: none imports what another needs."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

BATCH = 20_000
TWO_WORKERS = {"nworkers_per_group": 2, "nworkers_per_procs": 1}
Times = dict[str, Any]


def part(seed: int, rows: int, width: int) -> pd.DataFrame:
    """Return a partition: features of float64, and a label."""
    values = np.random.default_rng(seed).standard_normal((width, rows)).T
    frame = pd.DataFrame(values, columns=names(width), copy=False)
    frame["label"] = (values[:, 0] > 0).astype(np.int64)
    return frame


def names(width: int) -> list[str]:
    """Return the names of the features."""
    return [f"x{i}" for i in range(width)]


def read_frame(frame: Any, client: Client, n: int) -> Times:
    """Generate the frame, and drop it."""
    started = time.perf_counter()
    frame.map_partitions(len, meta=("n", int)).sum().compute()
    return {"ready_s": time.perf_counter() - started, "note": "generates the frame alone"}


def train(frame: Any, client: Client, n: int) -> Times:
    """Train an epoch by `singa_dask.train`."""
    import singa_dask as sd

    features = [name for name in frame.columns if name != "label"]
    store = {"path": "dask://train", "features": features, "label": "label", "batchsize": BATCH, "shuffle": "block"}
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=store),
            sd.layer("InnerProduct", name="fc", num_output=2),
            sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
        ]
    )
    sgd = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    steps = -(-n // BATCH)
    alg: Any = {"alg": "BP"}
    job = sd.Job(net, train_one_batch=alg, updater=sgd, train_steps=steps, cluster=TWO_WORKERS, disp_freq=steps)
    begun, on_event = _watch()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = sd.train(job, data=frame, client=client, run_dir=f"{folder}/run", progress=False, on_event=on_event)
        ended, found = time.perf_counter(), run.summary["bytes"]
    return {"ready_s": begun[0] - started, "read_s": ended - begun[0], "note": f"bytes {found}"}


def fit(frame: Any, client: Client, n: int) -> Times:
    """Fit a `SingaClassifier` without hidden layers, one epoch."""
    import singa_dask as sd
    from singa_dask.estimators import estimator

    begun, on_event = _watch()
    plain = estimator.train

    def watched(*arguments: Any, **given: Any) -> Any:
        note = given.pop("on_event")
        return plain(*arguments, **given, on_event=lambda event: (on_event(event), note(event)))

    estimator.train = watched  # type: ignore[assignment]
    estimator = sd.SingaClassifier(
        hidden_layer_sizes=(), batch_size=BATCH, max_iter=1, cluster=TWO_WORKERS, client=client, random_state=1
    )
    started = time.perf_counter()
    estimator.fit(frame.drop(columns="label"), frame["label"])
    ended = time.perf_counter()
    return {"ready_s": begun[0] - started, "read_s": ended - begun[0], "note": f"losses {estimator.loss_curve_}"}


def _watch() -> tuple[list[float], Callable[[Any], None]]:
    """Return a list that gets the time when the job starts, and what takes its events."""
    begun = list[float]()

    def on_event(event: Any) -> None:
        if event["event"] == "started":
            begun.append(time.perf_counter())

    return begun, on_event


def xgboost(frame: Any, client: Client, n: int) -> Times:
    """Make a matrix of xgboost.dask, and boost once."""
    from xgboost import dask as dxgb

    started = time.perf_counter()
    matrix = dxgb.DaskDMatrix(client, frame.drop(columns="label"), frame["label"])
    made = time.perf_counter()
    options = {"tree_method": "hist", "max_depth": 1, "objective": "binary:logistic", "nthread": 1}
    dxgb.train(client, options, matrix, num_boost_round=1)
    return {"ready_s": made - started, "read_s": time.perf_counter() - made, "note": "DaskDMatrix, one round"}


def torch(frame: Any, client: Client, n: int) -> Times:
    """Read batches of a DataLoader that computes a partition at a time."""
    from torch import from_numpy
    from torch.utils.data import DataLoader, IterableDataset

    class Partitions(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            for delayed in frame.to_delayed():
                found = client.compute(delayed).result()
                x = from_numpy(found.drop(columns="label").to_numpy(np.float32))
                y = from_numpy(found["label"].to_numpy().copy())
                for first in range(0, len(x), BATCH):
                    yield x[first : first + BATCH], y[first : first + BATCH]

    started = time.perf_counter()
    if sum(len(x) for x, _ in DataLoader(Partitions(), batch_size=None)) != n:
        raise RuntimeError(f"not {n} rows")
    return {"read_s": time.perf_counter() - started, "note": "computes the frame in each epoch"}


READERS = {"frame": read_frame, "train": train, "fit": fit, "xgboost": xgboost, "torch": torch}


def peak_mb() -> float:
    """Return the peak of this process, in 10**6 bytes, pages of files included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def pauses(client: Client, workers: list[str]) -> int:
    """Return how often Dask paused a worker."""
    events = (event for worker in workers for _, event in client.get_events(worker))
    return sum(isinstance(event, dict) and event.get("status") == "paused" for event in events)


def main(what: str, rows: int, columns: int, parts: int, limit_gb: float) -> None:
    """Read a frame, and print what it took as JSON."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=int(limit_gb * 1e9) or None,
            local_directory=scratch,
        ) as cluster,
        Client(cluster) as client,
    ):
        make = partial(part, rows=rows // parts, width=columns)
        frame = dd.from_map(make, range(parts), meta=make(0, rows=1))
        before = client.run(os.getpid)
        times = READERS[what](frame, client, rows)
        after = client.run(os.getpid)
        found = {
            "ready_s": None,
            "read_s": None,
            **times,
            "workers_mb": list(client.run(peak_mb).values()),
            "client_mb": peak_mb(),
            "ended": len(set(before.values()) - set(after.values())),
            "paused": pauses(client, list(before)),
            "load": os.getloadavg()[0],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
