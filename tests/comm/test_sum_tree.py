"""Sums by a tree over workers: any division among processes, in any order of arrival, gives the same bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.message import Address, Message
from singa_dask.comm.slices import slice_table
from singa_dask.comm.stub import Share, Stub
from singa_dask.comm.sum_tree import additions, complete_nodes, leaf, tree_sum
from singa_dask.comm.tree import ProcessTree
from singa_dask.conf import ClusterConf, UpdaterConf
from singa_dask.ops import NumpyOps
from singa_dask.runtime.units.server import Server
from tests.selection import few_examples

SIZES = [9, 4, 6]
N_SERVERS = 2
ADAM = UpdaterConf.model_validate({"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.1}})


def spread(size: int, *seed: int) -> np.ndarray:
    """Return values of very different size: their sum depends on the order."""
    random = np.random.default_rng(seed)
    return (random.normal(size=size) * 10.0 ** random.integers(-4, 4, size)).astype(np.float32)


def written(worker: int, stop: int) -> str:
    """Return the sum of workers up to ``stop`` as the brackets that it is computed with."""
    names = {leaf(i, stop): np.array(str(i), dtype=object) for i in range(worker, stop)}
    for left, right in additions(tuple(names)):
        names[left] = np.array(f"({names[left]}+{names[right]})", dtype=object)
    return str(names[leaf(worker, stop)])


@pytest.mark.parametrize(
    ("n", "brackets"),
    [
        (1, "0"),
        (2, "(0+1)"),
        (3, "((0+1)+2)"),
        (4, "((0+1)+(2+3))"),
        (6, "(((0+1)+(2+3))+(4+5))"),
        (9, "((((0+1)+(2+3))+((4+5)+(6+7)))+8)"),
    ],
)
def test_neighbours_are_added_first(n: int, brackets: str) -> None:
    assert written(0, n) == brackets


@pytest.mark.parametrize(
    ("local", "n_workers", "n_sums"),
    [([0, 1], 8, 1), ([4, 5, 6, 7], 8, 1), ([4], 5, 1), ([2, 3, 4], 5, 2), ([0, 1, 2], 3, 1), ([1, 2], 4, 2),
     ([0, 2, 4, 6], 8, 4), (range(9), 9, 1), ([6, 7, 8], 9, 2)],
)  # fmt: skip
def test_an_aligned_range_of_workers_has_one_sum(local: Sequence[int], n_workers: int, n_sums: int) -> None:
    nodes = complete_nodes(local, n_workers)
    assert sorted(nodes) == list(local)
    assert len(set(nodes.values())) == n_sums


class Job:
    """Stubs and servers of one worker group in some layout, and messages between them in any order."""

    def __init__(
        self,
        places: Sequence[int],
        servers: Sequence[int],
        users: Sequence[dict[int, int]],
        tree: ProcessTree | None = None,
    ) -> None:
        self.places, self.users = places, users
        units = {Address.worker(0, i): process for i, process in enumerate(places)}
        units |= {Address.server(0, i): process for i, process in enumerate(servers)}
        slices = slice_table(SIZES, 1, len(servers))
        n_sharers = [sum(map(abs, of_param.values())) for of_param in users]
        self.stubs = {
            process: Stub(process, slices, units, n_sharers, lambda group: 0, tree=tree)
            for process in {*places, *servers}
        }
        self.servers = {
            (address := Address.server(0, i)): Server(
                address, [piece for piece in slices if piece.server == i],
                lambda param, process=process: self.stubs[process].server_values(0, param),  # type: ignore[misc]
                [(1.0, 1.0)] * len(SIZES), n_sharers, ADAM, ClusterConf(nworkers_per_group=len(places)), NumpyOps(),
            )
            for i, process in enumerate(servers)
        }  # fmt: skip
        self.slices, self.units = slices, units
        self.grads: dict[tuple[int, int, int], np.ndarray] = {}
        self.versions: dict[tuple[int, int], list[int]] = defaultdict(list)
        for worker, process in enumerate(places):
            shares = []
            for param, of_param in enumerate(users):
                for k in range(abs(of_param.get(worker, 0))):
                    # a negative number of sharers: the first one's gradient is always 0
                    idle = k == 0 and of_param[worker] < 0
                    grad = self.grads[worker, param, k] = np.zeros(0 if idle else SIZES[param], np.float32)
                    told = self.versions[worker, param] if k == 0 else []
                    shares.append(Share(Address.worker(0, worker), param, grad, told.append))
            self.stubs[process].attach(shares)
        for param, size in enumerate(SIZES):
            values = self.stubs[places[0]].worker_values(0, param)
            values[:] = spread(size, param)
            sent = self.say("put", 0, param, version=0, arrays=(values,))
            for worker in range(1, len(places)):
                sent += self.say("get", worker, param, version=0)
            self.deliver(sent, np.random.default_rng(0))
        for versions in self.versions.values():
            versions.clear()

    def say(self, kind: str, worker: int, param: int = 0, share: int = 0, **more: object) -> list[Message]:
        stub = self.stubs[self.places[worker]]
        message = Message(kind, Address.worker(0, worker), stub.address, param=param, info={"share": share}, **more)  # type: ignore[arg-type]
        return stub.handle(message)

    def deliver(self, messages: list[Message], random: np.random.Generator) -> None:
        waiting = list(messages)
        while waiting:
            message = self.received(waiting.pop(int(random.integers(len(waiting)))))
            to_stub = message.dst.kind == "stub"
            waiting += (self.stubs[message.dst.group] if to_stub else self.servers[message.dst]).handle(message)

    def received(self, message: Message) -> Message:
        """Return a message as the process of its receiver gets it: from another one in memory of its own."""
        to, source = (unit.group if unit.kind == "stub" else self.units[unit] for unit in (message.dst, message.src))
        if source == to:
            return message
        if message.parts:
            return replace(message, parts=tuple(map(self.received, message.parts)))
        if not message.arrays:
            return message
        buffer = self.stubs[to].receive_buffer(message)
        if buffer is None:
            buffer = np.empty_like(message.arrays[0])
        np.copyto(buffer, message.arrays[0])
        return replace(message, arrays=(buffer,))

    def step(self, step: int, random: np.random.Generator) -> None:
        """Do one step; gradients depend on worker, param and sharer only, the order of all else on ``random``."""
        ready = list(self.grads)
        random.shuffle(ready)  # type: ignore[arg-type]
        sent: list[Message] = []
        for worker, param, k in ready:
            grad = self.grads[worker, param, k]
            grad[:] = spread(SIZES[param], step, worker, param, k)[: grad.size]
            sent += self.say("update", worker, param, k, step=step)
        for worker in range(len(self.places)):
            sent += self.say("flush", worker)
        self.deliver(sent, random)
        for (_, _), versions in self.versions.items():
            assert versions in ([], [step + 1])
            versions.clear()

    def values(self) -> list[bytes]:
        pieces = sorted((piece for server in self.servers.values() for piece in server.copy_slices()),
                        key=lambda piece: (piece.param, piece.start, piece.what))  # fmt: skip
        return [piece.array.tobytes() for piece in pieces]


@few_examples(25)
@given(st.integers(1, 9), st.data())
def test_every_layout_gives_the_same_bits(n_workers: int, data: st.DataObject) -> None:
    def users() -> dict[int, int]:
        counts = {i: data.draw(st.sampled_from([0, 1, 1, 1, 2, -2])) for i in range(n_workers)}
        return {i: n for i, n in counts.items() if n} or {0: 1}

    shared = [users() for _ in SIZES]
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    jobs = [Job([0] * n_workers, [0] * N_SERVERS, shared)]
    for _ in range(2):
        places = data.draw(st.lists(st.integers(0, 4), min_size=n_workers, max_size=n_workers))
        servers = data.draw(st.lists(st.integers(0, 4), min_size=N_SERVERS, max_size=N_SERVERS))
        jobs.append(Job(places, servers, shared))
    for step in range(2):
        for job in jobs:
            job.step(step, random)
        assert [job.values() for job in jobs[1:]] == [jobs[0].values()] * 2


def test_the_sum_of_the_tree_is_in_the_memory_of_the_first() -> None:
    grads = {leaf(worker, 5): np.full(2, worker, np.float32) for worker in (4, 1, 3)}
    total = tree_sum(grads)
    assert total is grads[leaf(1, 5)]
    assert total.tolist() == [8.0, 8.0]


def test_each_process_is_answered_once() -> None:
    """Workers 1 and 2 of four are apart in the tree: their process sends two sums, in memory of their own."""
    job = Job([1, 0, 0, 2], [2, 2], [dict.fromkeys(range(4), 1)] * len(SIZES))
    sent = [message for worker in (1, 2) for message in job.say("update", worker, step=0)]
    sent += job.say("flush", 1)
    parts = [part for message in sent for part in message.parts or (message,)]
    assert [part.info["node"] for part in parts if part.slice == parts[0].slice] == [leaf(1, 4), leaf(2, 4)]
    for worker in (0, 3):
        sent += job.say("update", worker, step=0) + job.say("flush", worker)
    answers = [answer for message in sent for answer in job.servers[message.dst].handle(job.received(message))]
    by_process = [part.dst.group for answer in answers for part in answer.parts or (answer,) if part.slice == 0]
    assert sorted(by_process) == [0, 1, 2]
