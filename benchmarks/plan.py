"""Predicted and measured times of a step: what the planner says of topologies, and what the run time takes.

Each case is a net, a topology on this host, and a partition. The prediction is that of ``singa-dask plan``; what is
measured is the median step of a job of real processes, in the best of some runs. Bytes that are sent in a step are
compared, too. A machine is not always equally fast: a step of the net alone is timed before and after each run, and
the speed that costs were measured at is scaled by the best of these times.
With ``--link`` each process is on a host of its own: a network namespace with one core and an interface of this rate.
``python -m benchmarks.plan [--net NAME ...] [--case NAME ...] [--steps N] [--link RATE]``
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed import Client

from benchmarks.contender import NETS
from benchmarks.jobs import job_on_made_records
from benchmarks.namespaces import HUB_ADDRESS, entered, inside, shaped_hosts
from singa_dask.conf import ClusterConf, JobConf, Phase, load
from singa_dask.planner.costs import MeasuredCosts
from singa_dask.planner.links import measure_here
from singa_dask.planner.loop import Loop
from singa_dask.planner.model import Cluster, Link, Prediction
from singa_dask.planner.search import partitions_of, with_dims
from singa_dask.planner.simulation import simulate
from singa_dask.planner.what_if import imagined_cluster, read_what_if
from singa_dask.runtime.job.client.job_cluster import embedded_cluster, install_jobs
from singa_dask.runtime.job.driver.driver import Driver
from singa_dask.runtime.job.driver.job_run import JobRun
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.layout import plan_processes
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.training import with_initialisers

ROOT = Path(__file__).parents[1]
JOBS = ("digits", "lenet", "mlp", "cifar-bn")
CASES: dict[str, dict[str, Any]] = {
    "one": {},
    "two workers of a process": {"nworkers_per_group": 2, "nworkers_per_procs": 2},
    "server apart": {"server_worker_separate": True},
    "all-reduce 2": {"nworkers_per_group": 2, "nservers_per_group": 2},
    "sandblaster 2 + 1": {"nworkers_per_group": 2, "server_worker_separate": True},
    "two workers, one server": {"nworkers_per_group": 2},
    "downpour 2 + 1": {"nworker_groups": 2, "server_worker_separate": True},
    "hogwild 2": {"nworker_groups": 2, "nserver_groups": 2, "sync_freq": 1},
    "all-reduce 3": {"nworkers_per_group": 3, "nservers_per_group": 3},
    "all-reduce 4": {"nworkers_per_group": 4, "nservers_per_group": 4},
    "feature 2": {"nworkers_per_group": 2, "nservers_per_group": 2},
}
"""Topologies by name."""
N_RUNS = 3
"""Runs of each case."""


def job_of(name: str, folder: str) -> JobConf:
    """Return the job of a net, without tests."""
    if name == "digits":
        keys = load(str(ROOT / "configs/digits/mlp.yaml")).job.model_dump(mode="json", exclude_unset=True)
        keys["neuralnet"]["layer"] = [
            layer for layer in keys["neuralnet"]["layer"] if layer.get("include", ["train"]) == ["train"]
        ]
        for key in ("test_freq", "test_steps", "validate_freq", "epochs", "checkpoint_freq", "early_stopping"):
            keys.pop(key, None)
    else:
        keys = job_on_made_records(NETS[name], folder)
    job = JobConf.model_validate({**keys, "disp_freq": 0, "train_steps": 1})
    return with_initialisers(job, build_nets(job)[Phase.TRAIN])


@contextmanager
def shaped_cluster(n: int, rate: str) -> Iterator[Client]:
    """Start a Dask worker on each of ``n`` hosts with shaped links; yield a client in the middle of them."""
    with ExitStack() as stack:
        hub, hosts = stack.enter_context(shaped_hosts(n, rate))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(entered(hub))
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        dask = [sys.executable, "-m", "dask"]
        file = f"{folder}/scheduler.json"
        commands = [[*dask, "scheduler", "--host", HUB_ADDRESS, "--no-dashboard", "--scheduler-file", file]]
        worker = [*dask, "worker", "--scheduler-file", file, "--nthreads", "4", "--no-nanny", "--no-dashboard"]
        commands += [[*inside(name), *worker, "--name", f"host-{k}"] for k, name in enumerate(hosts)]
        for command in commands:
            process = stack.enter_context(subprocess.Popen(command, **quiet))
            stack.callback(process.terminate)
        client = stack.enter_context(Client(scheduler_file=file, set_as_default=False))
        client.wait_for_workers(n)
        install_jobs(client)
        yield client


def fastest(loop: Loop) -> float:
    """Return the time of a step of a loop in the best of some runs, in seconds."""
    return min(loop.measure(1)[2] for _ in range(N_RUNS))


def measured(job: JobConf, n_steps: int, folder: str, rate: str, loop: Loop) -> tuple[float, float, int, float]:
    """Return the median time of a step of a run, its wait for cores, both in ms, and the bytes sent in a step.

    Of some runs it is the one that other work on the machine has disturbed least. The last value are the seconds of
    a step of a loop beside the runs, the least disturbed one, too.
    """
    layout, results, loop_s = plan_processes(job.cluster), [], [fastest(loop)]
    with shaped_cluster(len(layout.processes), rate.lower()) if rate else embedded_cluster(layout) as client:
        for i, n in enumerate((n_steps // 4, *[n_steps] * N_RUNS)):
            conf = job.model_copy(update={"train_steps": n})
            url = f"{folder}/run-{time.monotonic_ns()}"
            results.append(
                Driver(JobRun.of(conf, run_url=url, job_id=f"plan-{i}"), client, on_event=lambda event: None).run()
            )
            loop_s.append(fastest(loop))
    few, *many = results
    for each in many:
        if each.state != "done":
            raise SystemExit(f"{each.reason}\n{each.error}")
    best = min(many, key=lambda each: each.step_ms["median"])
    n_bytes = (best.bytes["sent"] - few.bytes["sent"]) / (n_steps - n_steps // 4)
    return best.step_ms["median"], best.wait_ms["cores"], round(n_bytes), min(loop_s)


class Case(NamedTuple):
    """A job on this host, or on hosts of its own."""

    name: str
    job: JobConf
    here: Cluster

    def predict(self, costs: MeasuredCosts, speed: float = 1.0) -> Prediction:
        """Predict it, where cores have a speed."""
        hosts = tuple(replace(host, speed=speed) for host in self.here.hosts)
        return simulate(self.job, JobPlan.make(self.job), replace(self.here, hosts=hosts), costs.of(self.job))


def cases_of(job: JobConf, names: Sequence[str], rate: str, within: Link, over_tcp: Link) -> Iterator[Case]:
    """Yield the cases that a net can have here."""
    net, n_cores = build_nets(job)[Phase.TRAIN], len(os.sched_getaffinity(0))
    for name in names:
        conf = ClusterConf.model_validate(CASES[name])
        dims = dict(partitions_of(job, net)).get("feature") if name.startswith("feature") else {}
        n = len(plan_processes(conf).processes)
        is_uneven = max(layer.features[0].shape[0] for layer in net.inputs) % conf.nworkers_per_group
        if dims is None or is_uneven or (rate and not 1 < n <= n_cores):
            continue
        what_if = f"hosts={n},cores=1,link={rate}" if rate else "hosts=1"
        here = imagined_cluster(read_what_if(what_if), within, over_tcp)
        cut = with_dims(job, dims).model_copy(update={"cluster": conf, "threads": 1})
        yield Case(name, cut, here if rate else replace(here, host_of=(0,) * n))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--link", default="", help="each process on a host of its own, e.g. with 1Gbit or 100Mbit")
    given = parser.parse_args()
    n_cores, load_1 = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"cores: {n_cores}; load {load_1:.1f}; ms of a step, error, speed, wait for cores, bytes sent a step")
    errors: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        within, over_tcp = measure_here(shared=True), measure_here(shared=False)
        for net in given.net:
            job = job_of(net, folder)
            cases, loop = list(cases_of(job, given.case, given.link, within, over_tcp)), Loop(job)
            before_s = fastest(loop)
            with MeasuredCosts(job, Path(folder, "costs.json")) as costs:
                for case in cases:  # what they need is measured
                    case.predict(costs)
                loop_s = min(before_s, fastest(loop))
                choices: dict[str, tuple[float, float]] = {}
                for case in cases:
                    ms, waited_ms, n_bytes, case_s = measured(case.job, given.steps, folder, given.link, loop)
                    speed = loop_s / case_s
                    found = case.predict(costs, speed)
                    error = 1e3 * found.step_s / ms - 1
                    errors.append(abs(error))
                    if case.job.cluster.nworker_groups == 1:
                        choices[case.name] = speed * found.step_s, speed * ms
                    same = "same bytes" if sum(found.bytes_sent) == n_bytes else f"{n_bytes} bytes, not"
                    print(
                        f"{net:9} {case.name:26} predicted {1e3 * found.step_s:8.2f}  measured {ms:8.2f}  "
                        f"{error:+6.1%}  {speed:5.2f}  {waited_ms:6.2f}  {same} {sum(found.bytes_sent)}",
                        flush=True,
                    )
                chosen, best = (min(choices, key=lambda name: choices[name][i]) for i in (0, 1))
                more = choices[chosen][1] / choices[best][1] - 1
                print(f"{net}: chosen {chosen!r}, measured {more:.1%} slower than {best!r}, the fastest", flush=True)
    print(f"{len(errors)} cases: error {np.median(errors):.1%} in the median, {max(errors):.1%} at most")


if __name__ == "__main__":
    main()
