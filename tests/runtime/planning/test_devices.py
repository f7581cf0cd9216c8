"""Which worker computes where: what a job says, what a process sees, and what follows for threads and params."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from singa_dask.comm.message import Address
from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError
from singa_dask.ops import OPS, NumpyOps
from singa_dask.runtime.planning.devices import VISIBLE, Devices, device_names, device_of_part, n_on_gpus, params_stay
from singa_dask.runtime.planning.layout import pack, plan_processes
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, HOGWILD, HYBRID, SANDBLASTER_1, SINGLE, mlp

TOGETHER = {"nworkers_per_procs": 4, "nservers_per_procs": 4}


class Gpus(NumpyOps):
    """Stands for the kernels of a machine with four GPUs."""

    @staticmethod
    def count() -> int:
        return 4


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPS, "find", lambda name: Gpus)
    monkeypatch.delenv(VISIBLE, raising=False)


@pytest.mark.parametrize(
    ("job", "n_workers", "names"),
    [
        ({}, 2, ["auto", "auto"]),
        ({"ops": "numpy"}, 1, ["numpy"]),
        ({"gpu": [0, 2]}, 3, ["cuda:0", "cuda:2", "auto"]),
        ({"gpu": [0, 2]}, 1, ["cuda:0"]),
        ({"gpu": [1, 1]}, 2, ["cuda:1", "cuda:1"]),
        ({"ops": "cupy", "gpu": [3, 1]}, 3, ["cuda:3", "cuda:1", "cuda:3"]),
        ({"ops": "cupy"}, 3, ["cuda:1", "cuda:0", "cuda:1"]),
        ({"gpu": [0]}, 0, []),
    ],
)
def test_workers_take_gpus_in_turn(job: dict[str, Any], n_workers: int, names: list[str]) -> None:
    assert device_names(mlp(**job), n_workers, n_visible=2, first=1) == names
    assert n_on_gpus(mlp(**job), n_workers) == sum(name.startswith("cuda") for name in names)


def test_where_there_is_none_the_first_is_asked_for() -> None:
    assert device_names(mlp(ops="cupy"), 2) == ["cuda:0", "cuda:0"]


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("job", "names"),
    [
        (mlp(), ["auto"] * 5),
        (mlp(gpu=[2, 0]), ["cuda:2", "cuda:0", "cuda:2", "cuda:0", "cuda:2"]),
        (mlp(ops="cupy"), ["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0"]),
    ],
)
def test_parts_of_an_inference_take_gpus_in_turn(job: JobConf, names: list[str]) -> None:
    assert [device_of_part(job, i) for i in range(5)] == names


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("neighbours", "visible", "names"),
    [
        (None, None, ["cuda:2", "cuda:3"]),
        ([1], None, ["cuda:0", "cuda:1"]),
        (None, "1,2,3,0", ["cuda:0", "cuda:1"]),
    ],
)
def test_processes_of_one_host_share_its_gpus(
    monkeypatch: pytest.MonkeyPatch, neighbours: Sequence[int] | None, visible: str | None, names: list[str]
) -> None:
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)  # as dask-cuda sets it: a process begins with its own
    job = mlp(ops="cupy", cluster=HYBRID)
    assert list(Devices(job, plan_processes(job.cluster), 1, neighbours).names.values()) == names


def test_a_worker_keeps_its_device_in_a_packed_layout() -> None:
    job = mlp(gpu=[1], cluster={"nworkers_per_group": 4, "nworkers_per_procs": 2})
    planned = plan_processes(job.cluster)
    devices = Devices(job, pack(planned, 1), 0)
    assert list(devices.names.values()) == ["cuda:1", "auto", "cuda:1", "auto"]
    assert [devices.threads(worker) == 1 for worker in devices.names][::2] == [True, True]
    assert {**Devices(job, planned, 0).names, **Devices(job, planned, 1).names} == devices.names


@pytest.mark.usefixtures("four_gpus")
def test_params_that_have_left_the_device_do_not_come_back() -> None:
    job = mlp(ops="cupy", gpu=[0], cluster=ALLREDUCE)
    packed = Devices(job, pack(plan_processes(job.cluster), 1), 0)
    assert set(packed.names.values()) == {"cuda:0"}
    assert not packed.params_stay


@pytest.mark.usefixtures("four_gpus")
def test_a_process_of_servers_alone_has_no_gpu() -> None:
    job = mlp(ops="cupy", cluster=SANDBLASTER_1)
    devices = Devices(job, plan_processes(job.cluster), 1)
    assert devices.names == {}
    assert devices.ops(Address.server(0, 0)).device == "cpu"


@pytest.mark.parametrize(
    ("cluster", "names", "stay"),
    [
        (SINGLE, ["cuda:0"], True),
        (SINGLE, ["auto"], False),
        ({"nworkers_per_group": 2, **TOGETHER}, ["cuda:1", "cuda:1"], True),
        ({"nworkers_per_group": 2, **TOGETHER}, ["cuda:0", "cuda:1"], False),
        ({"nworkers_per_group": 2, **TOGETHER}, ["cuda:0", "auto"], False),
        ({**DOWNPOUR, **TOGETHER}, ["cuda:0", "cuda:0"], True),
        ({**HOGWILD, **TOGETHER}, ["cuda:0", "cuda:0"], False),
        ({**DOWNPOUR, **TOGETHER, "share_memory": False}, ["cuda:0", "cuda:0"], False),
        (ALLREDUCE, ["cuda:0"], False),
        (SANDBLASTER_1, ["cuda:0", "cuda:0"], False),
    ],
)
def test_params_stay_where_one_gpu_has_all_units(cluster: dict[str, Any], names: list[str], stay: bool) -> None:
    assert params_stay(plan_processes(mlp(cluster=cluster).cluster), names) is stay


@pytest.mark.parametrize(
    ("job", "process", "threads", "own"),
    [
        ({"cluster": {"nworkers_per_group": 3, **TOGETHER}}, 0, [2, 2, 2], 2),
        ({"cluster": {"nworkers_per_group": 3, **TOGETHER}, "gpu": [0]}, 0, [1, 3, 3], 3),
        ({"cluster": {"nworkers_per_group": 3, **TOGETHER}, "gpu": [0, 0, 0]}, 0, [1, 1, 1], 1),
        ({"cluster": ALLREDUCE, "gpu": [0]}, 1, [1], 1),
        ({"cluster": SANDBLASTER_1, "gpu": [0]}, 1, [], 7),
    ],
)
def test_a_worker_on_a_gpu_takes_one_thread(
    monkeypatch: pytest.MonkeyPatch, job: dict[str, Any], process: int, threads: list[int], own: int
) -> None:
    monkeypatch.setattr("singa_dask.runtime.planning.machine.cpu_count", lambda: 8)
    made = mlp(**job)
    layout = plan_processes(made.cluster)
    devices = Devices(made, layout, process)
    workers = [unit for unit in layout.processes[process] if unit.kind == "worker"]
    assert [devices.threads(worker) for worker in workers] == threads
    assert devices.n_threads == own


def test_without_cupy_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> type[NumpyOps]:
        raise ConfigError("device 'cupy' cannot be used here: No module named 'cupy'. Install it.")

    monkeypatch.setattr(OPS, "find", find)
    for job, key in ((mlp(gpu=[0]), "gpu: "), (mlp(ops="cupy", gpu=[0]), "gpu: "), (mlp(ops="cupy"), "")):
        with pytest.raises(ConfigError, match=f"^{key}device 'cupy' cannot"):
            Devices(job, plan_processes(job.cluster), 0).ops(Address.worker(0, 0))
