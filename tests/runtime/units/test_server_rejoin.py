"""Servers while units start again in fresh processes: what a fresh server takes over, and what others forget."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.comm import Address, Message
from singa_dask.errors import LostUnitError
from tests.runtime.units.test_server import SIZE, Host, kinds

UNITS = {
    Address.server(0, 0): 0, Address.server(1, 0): 1, Address.server(2, 0): 2,
    Address.worker(0, 0): 3, Address.worker(1, 0): 4, Address.worker(2, 0): 5,
}  # fmt: skip


def replica(host: Host, src: Address, version: int, applied: list[int], value: float) -> list[Message]:
    """Answer a server that has asked for replicas."""
    arrays = (np.full(SIZE, value, np.float32),)
    info = {"slices": [[0, version, applied]]}
    return host.server.handle(Message("r-replica", src, host.server.address, info=info, arrays=arrays))


def nothing(host: Host, src: Address) -> list[Message]:
    return host.server.handle(Message("r-replica", src, host.server.address, info={"slices": []}))


def test_a_server_that_starts_again_takes_the_newest_values_that_others_have() -> None:
    host = Host(nworker_groups=3)
    host.server.restore(lambda what, piece: None, lambda piece: {0: 4, 1: 4, 2: 4})
    running = [Address.worker(group, 0) for group in range(3)]
    asked = host.server.rejoin(lambda piece: (np.full(SIZE, 4, np.float32), 12), running, UNITS)
    assert kinds(asked) == [("replica", Address.stub(process)) for process in (3, 4, 5)]
    replica(host, Address.stub(3), 20, [8, 5, 5], 20.0)
    replica(host, Address.stub(4), 15, [5, 5, 4], 15.0)
    assert host.server.is_rejoining
    nothing(host, Address.stub(5))
    assert not host.server.is_rejoining
    assert set(host.values) == {20.0}
    assert [host.server.applied(group) for group in range(3)] == [8, 5, 5]
    (answer,) = host.update(1.0, group=1, step=5)
    assert (answer.version, host.server.duplicates) == (20, 1)
    (answer,) = host.update(1.0, group=1, step=6)
    assert answer.version == 21


def test_values_of_a_snapshot_that_are_newer_than_those_of_all_others_stay() -> None:
    host = Host(nworker_groups=3)
    host.server.rejoin(lambda piece: (np.full(SIZE, 4, np.float32), 12), [Address.worker(1, 0)], UNITS)
    replica(host, Address.stub(4), 11, [3, 3, 3], 11.0)
    assert set(host.values) == {4.0}
    assert {piece.version for piece in host.server.snapshot()} == {12}


def test_a_server_whose_values_nobody_has_says_so() -> None:
    host = Host(nworker_groups=3)
    host.server.rejoin(lambda piece: None, [Address.worker(1, 0)], UNITS)
    with pytest.raises(LostUnitError, match="nobody has values of slice 0"):
        nothing(host, Address.stub(4))


def test_half_an_update_of_a_group_that_starts_again_is_forgotten() -> None:
    host = Host(nworker_groups=2, n_shares=2)
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


# the server group that starts again, the master of the slice, whose values it takes
@pytest.mark.parametrize(("group", "master", "source"), [(1, 0, 0), (0, 0, 1), (2, 0, 0), (1, 1, 0), (2, 1, 1)])
def test_a_server_that_starts_again_takes_the_values_of_another_group(group: int, master: int, source: int) -> None:
    cluster = {"nworker_groups": 3, "nserver_groups": 3, "sync_freq": 2}
    hosts = [Host(each, master=master, **cluster) for each in range(3)]
    for each, host in enumerate(hosts):
        host.put(0.0)
        host.update(float(each + 1), group=each)
    fresh = hosts[group] = Host(group, master=master, **cluster)
    units = [unit for unit in UNITS if unit.group == group]
    for host in hosts:
        if host is not fresh:
            told = Message("replaced", Address.stub(0), host.server.address, info={"units": list(map(list, units))})
            assert host.server.handle(told) == []
    running = [unit for unit in UNITS if unit.group != group]
    asked = fresh.server.rejoin(lambda piece: (np.ones(SIZE, np.float32), 100), running, UNITS)
    assert [message.dst for message in asked if message.dst.kind == "server"] == [Address.server(source, 0)]
    for message in asked:
        if message.dst.kind == "stub":
            replica(fresh, message.dst, 300, [9 if each == group else -1 for each in range(3)], 50.0)
        else:
            for answer in hosts[source].server.handle(message):
                fresh.server.handle(answer)
    assert not fresh.server.is_rejoining
    assert set(fresh.values) == {-(source + 1.0)}
    assert fresh.server.applied(group) == 9
    # from now on changes come and go as always: nothing is lost or counted twice
    total = settle(hosts, master, {each: 2.0 for each in range(3)})
    assert [set(host.values) for host in hosts] == [{total}] * 3


def settle(hosts: list[Host], master: int, grads: dict[int, float]) -> float:
    """Let each group do two updates, until all have the values of the master; return what these should be."""
    expected = float(hosts[master].values[0])
    for each, host in enumerate(hosts):
        unsent = 0.0 if each == master else float((host.values - held_last(host))[0])
        expected += unsent - 2 * grads[each]
    for _ in range(3):  # each round brings the changes of all to the master, and its values to all
        for each, host in enumerate(hosts):
            for _ in range(2):
                carry(host.update(grads[each], group=each), hosts)
        grads = dict.fromkeys(grads, 0.0)
    return expected


def held_last(host: Host) -> np.ndarray:
    last = host.server._held[0].last
    assert last is not None
    return last


def carry(messages: list[Message], hosts: list[Host]) -> None:
    for message in messages:
        if message.dst.kind == "server":
            carry(hosts[message.dst.group].server.handle(message), hosts)


def test_an_exchange_with_a_master_that_starts_again_does_not_wait_for_its_answer() -> None:
    host = Host(1, nworker_groups=2, nserver_groups=2, sync_freq=1)
    host.put(0.0)
    assert len(host.update(1.0, group=1)) == 2
    assert len(host.update(1.0, group=1)) == 1, "the first exchange is on its way"
    units = [list(Address.server(0, 0))]
    host.server.handle(Message("replaced", Address.stub(0), host.server.address, info={"units": units}))
    assert [message.kind for message in host.update(1.0, group=1)] == ["r-update", "sync"]
