"""Before a checkpoint server groups exchange all changes, so that the one that writes has those of all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.message import Address, Message
from tests.runtime.units.test_server import Host
from tests.selection import few_examples


@few_examples(25)
@given(
    st.lists(st.sampled_from(["update-0", "update-1", "update-2", "sync", "r-sync"]), max_size=40), st.integers(1, 9)
)
def test_after_servers_have_settled_the_first_group_has_all_changes_and_says_so(events: list[str], freq: int) -> None:
    """Gradients of each group have digits of their own, so that the values tell how many they have of it."""
    hosts = [Host(group, nworker_groups=3, nserver_groups=3, sync_freq=freq, master=1) for group in range(3)]
    for host in hosts:
        host.put(0.0)
    first, n_steps, on_the_way = Address.worker(0, 0), [0, 0, 0], list[Message]()
    settled: list[Address] = []

    def carry(messages: list[Message]) -> None:
        settled.extend(message.src for message in messages if message.kind == "r-settle")
        on_the_way.extend(message for message in messages if message.dst.kind == "server")

    def deliver(kind: str) -> None:
        if found := next((message for message in on_the_way if message.kind == kind), None):
            on_the_way.remove(found)
            carry(hosts[found.dst.group].server.handle(found))

    def settle(group: int) -> None:
        carry(hosts[group].server.handle(Message("settle", first, Address.server(group, 0), info={"requester": "t"})))

    def deliver_all() -> None:
        while on_the_way:
            deliver(on_the_way[0].kind)

    for event in events:
        if event.startswith("update"):
            group = int(event[-1])
            n_steps[group] += 1
            carry(hosts[group].update(float(100**group), group=group))
        else:
            deliver(event)
    settle(1)
    settle(2)
    deliver_all()
    settle(0)
    deliver_all()
    assert sorted(settled) == [Address.server(group, 0) for group in range(3)]
    assert set(hosts[0].values) == {-float(sum(n * 100**group for group, n in enumerate(n_steps)))}
    assert [hosts[0].server.applied(group) for group in range(3)] == [n - 1 for n in n_steps]
