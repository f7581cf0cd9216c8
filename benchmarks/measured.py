"""What the short form of all benchmarks measures: each function returns seconds, or bytes, of the installed package.

`benchmarks.all` starts ``python -m benchmarks.measured NAME SHARE`` for each value, in a folder with the data sets of
`benchmarks.all_data`. Functions use only the public interface, so that they also run on older checkouts. Models that a
function needs are trained before its time begins, in the folder ``models`` of the checkout.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.startup import FIRST_STEP, JOB, ONE_STEP, measure

__all__ = ["MEASURES", "Measure"]

US = (sys.executable, "-m", "singa_dask")
ALLREDUCE = "configs/cluster/allreduce.yaml"
# tests and checkpoints would be measured, too
ALONE = {"test_freq": 0, "checkpoint_freq": 0}
MODELS = Path(os.environ.get("BENCHMARK_MODELS", "models"))


class Measure(NamedTuple):
    """A function of a factor for numbers of steps and calls, a title, and the unit of the result."""

    run: Callable[[float], float]
    title: str
    unit: str = "s"


def command(*arguments: str, until: str = "") -> float:
    """Return the seconds of a command of singa-dask."""
    return measure([*US, *arguments], Path.cwd(), until).wall


def timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def median_time(call: Callable[[], object], n: float) -> float:
    """Return the median time of ``n`` calls, after a call that is not counted."""
    call()
    return statistics.median(timed(call) for _ in range(max(3, round(n))))


def import_package(share: float) -> float:
    code = [sys.executable, "-c", "import singa_dask"]
    return median_time(lambda: measure(code, Path.cwd()), 5 * share)


def show_help(share: float) -> float:
    return median_time(lambda: command("run", "--help"), 5 * share)


def first_step(share: float) -> float:
    return command("run", JOB, *ONE_STEP, "--run-dir", fresh("first"), until=FIRST_STEP)


def bare_step(net: str, share: float) -> float:
    """Measure a step without the run time. It has no public interface, so checkouts that are much older lack it."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    from benchmarks.contender import NETS
    from benchmarks.net_ours import loop_of
    from singa_dask.ops import get_ops

    return median_time(loop_of(NETS[net], get_ops("auto")).train_one_batch, 40 * share)


def job_step(net: str, share: float) -> float:
    import yaml

    from benchmarks.contender import NETS, job_on_records

    store, mean, path = (MODELS / f"{net}{end}" for end in (".arrow", "-mean.arrow", ".yaml"))
    if not store.exists():
        command("convert", "npz", f"{net}.npz", str(store), "--mean", str(mean))
    job = job_on_records(NETS[net], str(store), str(mean))
    path.write_text(yaml.safe_dump({**job, "threads": 1, "train_steps": max(3, round(40 * share))}))
    return step_s(str(path))


def allreduce_step(share: float) -> float:
    return step_s(JOB, cluster=ALLREDUCE, train_steps=max(3, round(500 * share)), threads=1)


def step_s(path: str, cluster: str | None = None, **keys: Any) -> float:
    """Train a job; return the median time of a step."""
    import singa_dask as sd

    run = sd.train(sd.load(path, set=ALONE | keys, cluster=cluster), run_dir=fresh("step"), progress=False)
    return float(run.summary["step_ms"]["median"]) / 1e3


def peak_memory(share: float) -> float:
    steps = max(3, round(200 * share))
    command("run", JOB, *ONE_STEP, "--set", f"train_steps={steps}", "--run-dir", fresh("memory"))
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024.0


def trained(table: str) -> tuple[str, str]:
    """Return job file and run directory of a model of a table; one step is enough."""
    run = str(MODELS / table.replace(".", "-"))
    if not Path(run).exists():
        command("init", table, "--label", "y", "--out", f"{run}.yaml")
        command("run", f"{run}.yaml", *ONE_STEP, "--run-dir", run, "--quiet")
    return f"{run}.yaml", run


def initialise(table: str, share: float) -> float:
    return command("init", table, "--label", "y", "--out", f"{fresh('init')}.yaml")


def predict(table: str, share: float) -> float:
    job, run = trained(table)
    return command("predict", job, "--init-from", run, "--data", table, "--out", f"{fresh('predicted')}.csv")


def open_table(form: str, share: float) -> float:
    opened(f"short.{form}")
    return timed(lambda: opened(f"long.{form}"))


def read_table(form: str, share: float) -> float:
    store = opened(f"long.{form}")
    return timed(lambda: [store.read_block(block.id) for block in store.blocks])


def opened(table: str) -> Any:
    import singa_dask as sd
    from benchmarks.all_data import NUMBERS

    return sd.open_store(table, "table", label="y", features=NUMBERS)


def predict_frame(share: float) -> float:
    import pandas as pd

    model, frame = loaded(trained("long.parquet")[1]), pd.read_parquet("long.parquet").drop(columns="y")
    model.predict(frame[:10])
    return timed(lambda: model.predict(frame))


def predict_dict(share: float) -> float:
    import pandas as pd

    model = loaded(trained("long.parquet")[1])
    (row,) = pd.read_csv("short.csv", nrows=1).drop(columns="y").to_dict("records")
    return median_time(lambda: model.predict(row), 500 * share)


def predict_array(share: float) -> float:
    import numpy as np

    model, row = loaded(digits()), np.zeros((1, 784), np.uint8)
    return median_time(lambda: model.predict(row), 500 * share)


def loaded(run: str) -> Any:
    import singa_dask as sd

    return sd.load_model(run, threads=1)


def digits() -> str:
    """Return the run directory of a model of the digits."""
    run = str(MODELS / "digits")
    if not Path(run).exists():
        command("run", JOB, *ONE_STEP, "--run-dir", run, "--quiet")
    return run


def serve(share: float) -> float:
    """Measure requests of one connection, one after the other."""
    body = json.dumps({"records": [[0] * 784]})
    line = [*US, "serve", digits(), "--port", "0", "--threads", "1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().strip().rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port)

            def ask() -> None:
                connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                if b"predictions" not in (text := answer.read()):
                    raise RuntimeError(f"serve answered {answer.status}: {text!r}")

            return median_time(ask, 500 * share)
        finally:
            process.terminate()


def load_records(shuffle: str, share: float) -> float:
    """Measure 10**6 records of 784 bytes; the command prints a rate."""
    store = MODELS / "records.arrow"
    if not store.exists():
        command("convert", "npz", "records.npz", str(store))
    line = [*US, "data", "bench", str(store), "--shuffle", shuffle, "--json"]
    rates = json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout)["rates"]
    return 1e6 / float(rates[0]["loader"])


def fresh(name: str) -> str:
    """Return a path that does not exist, without a suffix."""
    return str(MODELS / f"{name}-{os.getpid()}")


NETS = {"mlp": "MLP", "lenet": "LeNet", "cifar": "CIFAR net"}
FORMS = {"csv": "1 M x 19 CSV", "parquet": "1 M x 19 Parquet"}
MEASURES = {
    "import": Measure(import_package, "import singa_dask"),
    "help": Measure(show_help, "run --help"),
    "first-step": Measure(first_step, "first step of digits"),
    **{f"step-{net}": Measure(partial(bare_step, net), f"step of {title}, bare") for net, title in NETS.items()},
    **{f"job-{net}": Measure(partial(job_step, net), f"step of {title}, in a job") for net, title in NETS.items()},
    "allreduce": Measure(allreduce_step, "step of digits, AllReduce of 2"),
    "memory": Measure(peak_memory, "peak memory of digits", "B"),
    **{f"open-{form}": Measure(partial(open_table, form), f"open {title}") for form, title in FORMS.items()},
    **{f"read-{form}": Measure(partial(read_table, form), f"read {title}") for form, title in FORMS.items()},
    **{
        f"predict-{form}": Measure(partial(predict, f"long.{form}"), f"predict {title}")
        for form, title in FORMS.items()
    },
    "predict-frame": Measure(predict_frame, "Model.predict of 1 M x 19"),
    "init-wide": Measure(partial(initialise, "wide.csv"), "init 300 x 20,000 CSV"),
    "predict-wide": Measure(partial(predict, "wide.csv"), "predict 300 x 20,000 CSV"),
    "predict-dict": Measure(predict_dict, "Model.predict of a dict"),
    "predict-array": Measure(predict_array, "Model.predict of an array row"),
    "serve": Measure(serve, "request to serve"),
    "loader-ordered": Measure(partial(load_records, "none"), "1 M records in order"),
    "loader-shuffled": Measure(partial(load_records, "full"), "1 M records shuffled"),
}


def main() -> None:
    """Print the value of a measure, or with ``about`` the version of the package and where it is."""
    name, share = sys.argv[1:]
    if name == "about":
        package = importlib.import_module("singa_dask")
        print(json.dumps({"version": package.__version__, "file": package.__file__}))
    else:
        MODELS.mkdir(exist_ok=True)
        print(json.dumps(MEASURES[name].run(float(share))))


if __name__ == "__main__":
    main()
