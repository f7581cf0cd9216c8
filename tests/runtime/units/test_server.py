"""The server as a state machine: who is answered when, with what, and what groups tell each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.message import Address, Message, pack
from singa_dask.comm.slices import slice_table
from singa_dask.comm.sum_tree import leaf, tree_sum
from singa_dask.conf import ClusterConf, UpdaterConf
from singa_dask.ops import NumpyOps
from singa_dask.runtime.units.server import Server
from singa_dask.training import UPDATERS
from tests.selection import few_examples

SIZE = 6
SGD = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 1.0}}


def spread(seed: int) -> np.ndarray:
    """Return values of very different size: their sum depends on the order."""
    random = np.random.default_rng(seed)
    return (random.normal(size=SIZE) * 10.0 ** random.integers(-4, 4, SIZE)).astype(np.float32)


class Host:
    """One server with one param in one slice, and messages as the stubs of processes send them."""

    def __init__(
        self, group: int = 0, updater: dict[str, Any] = SGD, master: int = 0, divisor: int = 1, **cluster: Any
    ) -> None:
        self.values = np.zeros(SIZE, np.float32)
        slices = [piece._replace(master=master) for piece in slice_table([SIZE], 1, 1)]
        conf = UpdaterConf.model_validate(updater)
        shape = ClusterConf.model_validate(cluster)
        address = Address.server(group, 0)
        self.server = Server(
            address, slices, lambda param: self.values, [(1.0, 1.0)], [divisor], conf, shape, NumpyOps()
        )

    def put(self, values: np.ndarray | float = 0.0, version: int = 0) -> list[Message]:
        filled = np.full(SIZE, values, np.float32)
        return self.send("put", version=version, arrays=(filled,))

    def send(
        self,
        kind: str,
        process: int = 0,
        group: int = 0,
        n: int = 1,
        total: int = 1,
        in_place: bool = False,
        node: int | None = None,
        **more: Any,
    ) -> list[Message]:
        """Send a message; without ``node`` as if each process had one worker of at most four."""
        node = leaf(process, 4) if node is None else node
        info = {"group": group, "n": n, "total": total, "node": node, "in_place": in_place}
        src = Address.stub(process)
        return self.server.handle(Message(kind, src, self.server.address, param=0, slice=0, info=info, **more))

    def update(self, grad: np.ndarray | float, **more: Any) -> list[Message]:
        applied = self.server.applied(more.get("group", 0))
        assert applied is not None
        step = applied + 1
        return self.send("update", arrays=(np.full(SIZE, grad, np.float32),), **{"step": step, **more})

    def from_server(self, kind: str, values: np.ndarray, group: int = 1) -> list[Message]:
        src = Address.server(group, 0)
        info = {"applied": [-1] * len(self.server._held[0].applied)}
        return self.server.handle(Message(kind, src, self.server.address, slice=0, info=info, arrays=(values,)))


def kinds(messages: list[Message]) -> list[tuple[str, Address]]:
    return [(message.kind, message.dst) for message in messages]


def test_a_get_before_the_put_is_answered_after_it() -> None:
    host = Host()
    assert host.send("get", process=1, version=0) == []
    assert host.send("get", process=2, version=0) == []
    answers = host.put(7.0)
    assert kinds(answers) == [("r-get", Address.stub(1)), ("r-get", Address.stub(2))]
    assert all(answer.arrays[0].tolist() == [7.0] * SIZE and answer.version == 0 for answer in answers)
    assert kinds(host.send("get", process=3, version=0)) == [("r-get", Address.stub(3))]


def test_a_get_of_a_later_version_waits_for_the_update() -> None:
    host = Host()
    host.put()
    assert host.send("get", process=2, version=1) == []
    answers = host.update(1.0)
    assert kinds(answers) == [("r-update", Address.stub(0)), ("r-get", Address.stub(2))]
    assert {answer.version for answer in answers} == {1}


def test_an_update_is_the_mean_over_all_sharers_of_the_group() -> None:
    host = Host(divisor=3)
    host.put(10.0)
    assert host.update(3.0, process=1, n=2, total=3) == []
    assert set(host.values) == {10.0}
    answers = host.update(6.0, process=0, n=1, total=3)
    assert kinds(answers) == [("r-update", Address.stub(0)), ("r-update", Address.stub(1))]
    assert set(host.values) == {7.0}


def test_answers_in_place_carry_no_arrays() -> None:
    host = Host()
    host.put()
    host.update(1.0, process=0, n=1, total=2, in_place=True)
    here, there = host.update(1.0, process=1, n=1, total=2, in_place=False)
    assert (here.dst, here.arrays) == (Address.stub(0), ())
    assert there.arrays[0].tolist() == host.values.tolist()
    (answer,) = host.send("get", in_place=True, version=0)
    assert answer.arrays == ()


def test_answers_to_several_groups_do_not_change_on_their_way() -> None:
    host = Host(nworker_groups=2)
    host.put(1.0)
    (answer,) = host.update(1.0, group=0)
    host.update(1.0, group=1)
    assert set(answer.arrays[0]) == {0.0}
    assert set(host.values) == {-1.0}


def test_answers_to_several_groups_take_turns_with_memory() -> None:
    host = Host(nworker_groups=2)
    host.put(0.0)
    addresses = set()
    for step in range(20):
        (answer,) = host.update(1.0, group=step % 2, step=step)
        addresses.add(answer.arrays[0].ctypes.data)
        assert set(answer.arrays[0]) == {-step - 1.0}
    assert len(addresses) <= 2  # one is referred to while the next one is written


def test_put_says_how_many_updates_the_values_have_seen() -> None:
    host = Host()
    host.put(version=41)
    (answer,) = host.update(0.0)
    assert answer.version == 42
    assert {piece.version for piece in host.server.copy_slices()} == {42}


@few_examples(25)
@given(
    n_groups=st.integers(1, 3),
    n_processes=st.integers(1, 4),
    n_rounds=st.integers(1, 3),
    data=st.data(),
    updater=st.sampled_from(["SGD", "Nesterov", "AdaGrad"]),
)
def test_any_order_of_arrival_gives_the_same_bits(
    n_groups: int, n_processes: int, n_rounds: int, data: st.DataObject, updater: str
) -> None:
    """Whole updates of groups come in some order; inside each, processes come in any order, mixed with the others'."""
    rule = {"type": updater, "momentum": 0.9, "weight_decay": 0.01, "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    host = Host(updater=rule, nworker_groups=n_groups, divisor=n_processes)
    host.put(spread(0))
    plain = UPDATERS.find(updater)(UpdaterConf.model_validate(rule))
    wanted = host.values.copy()
    state = {name: np.zeros_like(wanted) for name in plain.state_names}
    left = {group: [(r, p) for r in range(n_rounds) for p in range(n_processes)] for group in range(n_groups)}
    n_updates = 0
    while any(left.values()):
        group = data.draw(st.sampled_from([group for group in left if left[group]]))
        now = left[group][0][0]
        # a group's next round starts when the last one is answered: only this round's processes can send
        ready = [each for each in left[group] if each[0] == now]
        pick = data.draw(st.sampled_from(ready))
        left[group].remove(pick)
        grads = [spread(1000 * group + 10 * now + p) for p in range(n_processes)]
        answers = host.update(grads[pick[1]].copy(), group=group, process=pick[1], n=1, total=n_processes, step=now)
        if len(ready) > 1:
            assert answers == []
            continue
        total = tree_sum({leaf(p, n_processes): grad for p, grad in enumerate(grads)})
        plain.update(now, n_updates, wanted, total, state, n_sharers=n_processes)
        n_updates += 1
        assert [answer.dst for answer in answers] == [Address.stub(p) for p in range(n_processes)]
        assert {answer.info["group"] for answer in answers} == {group}
        assert all(answer.arrays[0].tobytes() == wanted.tobytes() for answer in answers)
    assert host.values.tobytes() == wanted.tobytes()


def test_of_gradients_that_are_summed_the_mean_is_over_workers() -> None:
    host = Host(divisor=2)
    host.put(0.0)
    assert host.update(6.0, n=2, total=4, process=0) == []  # the sum of both sharers of each of two workers
    host.update(10.0, n=2, total=4, process=1)
    assert set(host.values) == {-8.0}


def test_requests_of_different_groups_never_mix() -> None:
    host = Host(nworker_groups=2, divisor=2)
    host.put(0.0)
    assert host.update(1.0, group=0, process=0, total=2) == []
    assert host.update(10.0, group=1, process=0, total=2) == []  # two requests are there, of two groups
    assert set(host.values) == {0.0}
    assert {each.info["group"] for each in host.update(30.0, group=1, process=1, total=2)} == {1}
    assert set(host.values) == {-20.0}
    assert {each.info["group"] for each in host.update(3.0, group=0, process=1, total=2)} == {0}
    assert set(host.values) == {-22.0}


def test_requests_that_come_in_one_message_are_answered_in_one() -> None:
    values = [np.zeros(size, np.float32) for size in (3, 4)]
    conf = UpdaterConf.model_validate(SGD)
    slices = slice_table([3, 4], 1, 1)
    server = Server(
        Address.server(0, 0), slices, lambda param: values[param], [(1.0, 1.0)] * 2, [2, 2], conf, ClusterConf(),
        NumpyOps(),
    )  # fmt: skip

    def request(kind: str, process: int, param: int, fill: float, total: int = 1) -> Message:
        info = {"group": 0, "n": 1, "total": total, "node": leaf(process, 2), "in_place": False}
        arrays = (np.full(values[param].size, fill, np.float32),)
        return Message(kind, Address.stub(process), server.address, param=param, slice=param, version=0, step=0,
                       info=info, arrays=arrays)  # fmt: skip

    for param in range(2):
        server.handle(request("put", 0, param, 10.0))
    assert server.handle(*pack(request("update", 0, param, 2.0, total=2) for param in range(2))) == []
    answers = server.handle(*pack(request("update", 1, param, 4.0, total=2) for param in range(2)))
    assert kinds(answers) == [("pack", Address.stub(0)), ("pack", Address.stub(1))]
    for answer in answers:
        assert [(part.kind, part.slice, part.version) for part in answer.parts] == [
            ("r-update", 0, 1),
            ("r-update", 1, 1),
        ]
        assert [part.arrays[0].tolist() for part in answer.parts] == [[7.0] * 3, [7.0] * 4]


def test_updater_state_is_restored_and_snapshot() -> None:
    momentum = {**SGD, "momentum": 0.5}
    first, second = Host(updater=momentum), Host(updater=momentum)
    first.put(spread(1))
    first.update(spread(2))
    pieces = {piece.what: piece for piece in first.server.copy_slices()}
    assert set(pieces) == {"value", *UPDATERS.find("SGD")(UpdaterConf.model_validate(momentum)).state_names}
    second.server.restore(lambda what, piece: pieces[what].array if what in pieces else None, lambda piece: {})
    second.put(pieces["value"].array, version=1)
    for host in (first, second):
        host.update(spread(3), step=1)
    assert first.values.tobytes() == second.values.tobytes()
    first.update(spread(4), step=2)
    assert pieces["value"].array.tobytes() != first.values.tobytes(), "a snapshot is a copy"


# -- updates that come twice -----------------------------------------------------------------------


def test_an_update_that_comes_twice_is_applied_once_and_answered_twice() -> None:
    host = Host(nworker_groups=2)
    host.put(10.0)
    host.update(1.0, group=0, step=4)
    host.update(1.0, group=1, step=4)
    (answer,) = host.update(1.0, group=0, step=4)
    assert (answer.kind, answer.dst, answer.version) == ("r-update", Address.stub(0), 2)
    assert answer.arrays[0].tolist() == [8.0] * SIZE
    assert host.server.duplicates == 1
    assert (host.server.applied(0), host.server.applied(1)) == (4, 4)
    host.update(1.0, group=0, step=5)
    assert set(host.values) == {7.0}


def test_an_update_of_which_a_part_comes_twice_is_applied_once() -> None:
    host = Host(nworker_groups=2, divisor=2)
    host.put(0.0)
    for _ in range(2):
        assert host.update(1.0, process=0, total=2, step=0) == []
    assert len(host.update(3.0, process=1, total=2, step=0)) == 2
    assert kinds(host.update(3.0, process=1, total=2, step=0)) == [("r-update", Address.stub(1))]
    assert set(host.values) == {-2.0}


def test_what_was_applied_is_in_snapshots_and_restored() -> None:
    first, second = (Host(nworker_groups=3) for _ in range(2))
    first.put(0.0)
    first.update(1.0, group=0, step=7)
    first.update(1.0, group=2, step=5)
    (piece,) = (piece for piece in first.server.copy_slices() if piece.what == "value")
    assert piece.applied == {0: 7, 2: 5}
    second.server.restore(lambda what, piece: None, lambda _: piece.applied)
    assert [second.server.applied(group) for group in range(3)] == [7, -1, 5]
    assert all(not piece.applied for piece in Host().server.copy_slices())


# -- between server groups -------------------------------------------------------------------------


def groups(sync_freq: int = 1) -> tuple[Host, Host]:
    """Return the master of the slice (group 0) and a server of group 1, both with zeros."""
    pair = tuple(Host(group, nworker_groups=2, nserver_groups=2, sync_freq=sync_freq) for group in range(2))
    for host in pair:
        host.put(0.0)
    return pair[0], pair[1]


@pytest.mark.parametrize("sync_freq", [1, 2, 5])
def test_changes_are_sent_to_the_master_every_sync_freq_updates(sync_freq: int) -> None:
    master, other = groups(sync_freq)
    for n in range(1, 3 * sync_freq + 1):
        assert kinds(master.update(1.0)) == [("r-update", Address.stub(0))]
        answers = other.update(1.0, group=1)
        if n % sync_freq:
            assert len(answers) == 1
            continue
        sync = answers[-1]
        assert (sync.kind, sync.dst, sync.src) == ("sync", Address.server(0, 0), Address.server(1, 0))
        assert sync.arrays[0].tolist() == [-float(sync_freq)] * SIZE
        (answer,) = master.from_server("sync", sync.arrays[0])
        assert (answer.kind, answer.dst) == ("r-sync", Address.server(1, 0))
        assert other.from_server("r-sync", answer.arrays[0], group=0) == []
        assert other.values.tolist() == master.values.tolist() == [-2.0 * n] * SIZE


def test_an_exchange_does_not_start_while_one_is_on_its_way() -> None:
    _, other = groups()
    assert kinds(other.update(1.0, group=1))[-1][0] == "sync"
    for _ in range(3):
        assert kinds(other.update(1.0, group=1)) == [("r-update", Address.stub(0))]
    other.from_server("r-sync", np.full(SIZE, -1.0, np.float32), group=0)
    sync = other.update(1.0, group=1)[-1]
    assert sync.kind == "sync"
    assert sync.arrays[0].tolist() == [-4.0] * SIZE


def test_half_an_update_of_a_group_that_starts_again_is_forgotten() -> None:
    host = Host(nworker_groups=2, divisor=2)
    host.put(0.0)
    host.update(1.0, group=0, process=0, total=2)
    host.update(1.0, group=1, process=0, total=2)
    host.send("get", group=0, version=1)
    units = [list(Address.worker(0, i)) for i in range(2)]
    host.server.handle(Message("replaced", Address.stub(0), host.server.address, info={"units": units}))
    assert host.update(5.0, group=0, process=1, total=2) == []
    assert kinds(host.update(3.0, group=1, process=1, total=2)) == [
        ("r-update", Address.stub(0)),
        ("r-update", Address.stub(1)),
    ]
    assert set(host.values) == {-2.0}


@few_examples(25)
@given(
    st.lists(st.sampled_from(["update-0", "update-1", "update-2", "sync", "r-sync"]), max_size=40), st.integers(1, 3)
)
def test_no_change_is_lost_whenever_messages_arrive(events: list[str], sync_freq: int) -> None:
    """Gradients are whole numbers, so that sums are exact: at the end all groups have all of them."""
    hosts = [Host(group, nworker_groups=3, nserver_groups=3, sync_freq=sync_freq) for group in range(3)]
    for host in hosts:
        host.put(0.0)
    on_the_way: dict[str, list[Message]] = {"sync": [], "r-sync": []}
    total = 0.0

    def carry(messages: list[Message]) -> None:
        for message in messages:
            if message.kind in on_the_way:
                on_the_way[message.kind].append(message)

    def deliver(kind: str) -> None:
        if on_the_way[kind]:
            message = on_the_way[kind].pop()  # the youngest first: any order is right
            carry(hosts[message.dst.group].server.handle(message))

    def settle() -> None:
        while any(on_the_way.values()):
            for kind in on_the_way:
                deliver(kind)

    for n, event in enumerate(events, 1):
        if event in on_the_way:
            deliver(event)
        else:
            total += n
            carry(hosts[int(event[-1])].update(float(n), group=int(event[-1])))
    settle()
    for _ in range(2):  # once for all changes to reach the master, once for all groups to learn of them
        for group in (1, 2):
            for _ in range(sync_freq):
                carry(hosts[group].update(0.0, group=group))
            settle()
    assert [set(host.values) for host in hosts] == [{-total}] * 3
