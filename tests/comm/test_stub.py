"""The stub as the state machine that it is: messages in, messages out, and what became of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.message import Address, Message, pack
from singa_dask.comm.slices import slice_table
from singa_dask.comm.stub import Share, Stub

SIZES = [40, 7]
WORKERS = [[Address.worker(group, i) for i in range(2)] for group in range(2)]


def table(n_servers: int) -> list[Address]:
    return [Address.server(0, i) for i in range(n_servers)]


class Post:
    """A stub with two workers of each of two groups; ``remote`` says which servers live elsewhere."""

    def __init__(
        self,
        n_servers: int = 2,
        remote: Sequence[int] = (),
        share_memory: bool = True,
        n_sharers: Sequence[int] = (2, 2),
    ) -> None:
        units = {worker: 0 for group in WORKERS for worker in group}
        units |= {server: int(server.id in remote) for server in table(n_servers)}
        self.slices = slice_table(SIZES, 1, n_servers)
        self.stub = Stub(0, self.slices, units, n_sharers, lambda group: 0, share_memory=share_memory)
        self.versions: dict[tuple[Address, int], list[int]] = {}
        self.grads: dict[tuple[Address, int], np.ndarray] = {}

    def attach(self, worker: Address, params: Sequence[int] = (0, 1)) -> None:
        shares = []
        for param in params:
            grad = self.grads.setdefault((worker, param), np.zeros(SIZES[param], np.float32))
            told = self.versions.setdefault((worker, param), [])
            shares.append(Share(worker, param, grad, told.append))
        self.stub.attach(shares)

    def say(self, kind: str, worker: Address, param: int = 0, share: int = 0, **more: object) -> list[Message]:
        fields = {"step": 3, "info": {"share": share}, **more}
        return self.stub.handle(Message(kind, worker, self.stub.address, param=param, **fields))  # type: ignore[arg-type]

    def update(self, worker: Address, param: int = 0, share: int = 0) -> list[Message]:
        """Hand over a gradient, and let it leave at once; return the messages of packs."""
        sent = self.say("update", worker, param, share) + self.say("flush", worker)
        return [part for message in sent for part in message.parts or (message,)]

    def of(self, param: int) -> list[int]:
        return [number for number, piece in enumerate(self.slices) if piece.param == param]

    def answer(
        self,
        kind: str,
        number: int,
        group: int,
        version: int,
        values: float | None = None,
        step: int = 3,
        **info: object,
    ) -> list[Message]:
        piece = self.slices[number]
        arrays = () if values is None else (np.full(piece.size, values, np.float32),)
        answer = Message(
            kind,
            Address.server(0, piece.server),
            self.stub.address,
            param=piece.param,
            slice=number,
            version=version,
            step=step,
            info={"group": group, **info},
            arrays=arrays,
        )
        return self.stub.handle(answer)


@pytest.fixture
def post() -> Post:
    made = Post()
    for group in WORKERS:
        for worker in group:
            made.attach(worker)
    return made


def test_values_are_cut_and_each_slice_goes_to_its_server(post: Post) -> None:
    values = np.arange(40, dtype=np.float32)
    sent = post.say("put", WORKERS[0][0], version=5, arrays=(values,))
    assert [message.slice for message in sent] == post.of(0)
    for message in sent:
        piece = post.slices[message.slice]
        assert (message.kind, message.dst, message.version) == ("put", Address.server(0, piece.server), 5)
        assert message.src == post.stub.address
        np.testing.assert_array_equal(message.arrays[0], values[piece.start : piece.stop])
        assert np.shares_memory(message.arrays[0], values)
    assert {message.dst.id for message in sent} == {0, 1}


def test_a_gradient_leaves_when_the_last_local_worker_has_sent_its_own(post: Post) -> None:
    first, second = WORKERS[0]
    post.grads[first, 0][:], post.grads[second, 0][:] = 1, 2
    assert post.update(second) == []
    sent = post.update(first)
    assert [message.slice for message in sent] == post.of(0)
    for message in sent:
        assert message.arrays[0].tolist() == [3.0] * post.slices[message.slice].size
        assert dict(message.info) == {"group": 0, "n": 2, "total": 2, "node": 1, "in_place": True}
        assert message.step == 3


def test_params_and_groups_do_not_mix(post: Post) -> None:
    assert post.update(WORKERS[0][0], param=0) == []
    assert post.update(WORKERS[0][0], param=1) == []
    assert post.update(WORKERS[1][0], param=0) == []
    assert {message.info["group"] for message in post.update(WORKERS[1][1], param=0)} == {1}
    assert {message.param for message in post.update(WORKERS[0][1], param=1)} == {1}
    assert {message.info["group"] for message in post.update(WORKERS[0][1], param=0)} == {0}


def test_a_param_used_twice_in_a_net_is_sent_when_both_uses_have_a_gradient() -> None:
    post = Post(n_sharers=(4, 2))
    for worker in WORKERS[0]:
        post.attach(worker, (0, 0))
    for worker in WORKERS[0]:
        post.grads[worker, 0][:] = 1
    said = [(worker, share) for share in (1, 0) for worker in WORKERS[0]]
    for worker, share in said[:-1]:
        assert post.update(worker, share=share) == []
    sent = post.update(said[-1][0], share=said[-1][1])
    assert {(message.info["n"], message.info["total"]) for message in sent} == {(4, 4)}


@given(st.permutations([(0, 0), (0, 1), (1, 0), (1, 1)]))
def test_the_sum_has_the_same_bits_in_every_order_of_arrival(order: list[tuple[int, int]]) -> None:
    post = Post()
    for i in (1, 0):
        post.attach(WORKERS[0][i])
    random = np.random.default_rng(7)
    for grad in (post.grads[WORKERS[0][i], param] for i in range(2) for param in range(2)):
        grad[:] = random.normal(size=grad.size) * 10.0 ** random.integers(-6, 6, grad.size)
    wanted = [post.grads[WORKERS[0][0], p] + post.grads[WORKERS[0][1], p] for p in range(2)]
    sent = [message for i, param in order for message in post.update(WORKERS[0][i], param)]
    assert len(sent) == len(post.slices)
    for message in sent:
        piece = post.slices[message.slice]
        assert message.arrays[0].tobytes() == wanted[piece.param][piece.start : piece.stop].tobytes()


def test_one_get_serves_all_workers_of_a_group(post: Post) -> None:
    assert [message.slice for message in post.say("get", WORKERS[0][0], version=0)] == post.of(0)
    assert post.say("get", WORKERS[0][1], version=0) == []
    assert len(post.say("get", WORKERS[1][0], version=0)) == len(post.of(0))
    assert len(post.say("get", WORKERS[0][0], param=1, version=0)) == len(post.of(1))


def test_a_version_is_published_once_every_slice_is_there(post: Post) -> None:
    numbers = post.of(0)
    assert len(numbers) > 1
    for worker in WORKERS[0]:
        post.update(worker)
    for number in numbers[:-1]:
        assert post.answer("r-update", number, 0, version=4) == []
    assert post.versions[WORKERS[0][0], 0] == []
    post.answer("r-update", numbers[-1], 0, version=6)
    assert [post.versions[worker, 0] for worker in WORKERS[0]] == [[4], [4]]
    assert [post.versions[worker, 0] for worker in WORKERS[1]] == [[], []]


@given(st.permutations([(group, k) for group in range(2) for k in range(2)]))
def test_answers_of_two_groups_may_cross(order: list[tuple[int, int]]) -> None:
    post = Post(remote=(0, 1), share_memory=False)
    for group in WORKERS:
        post.attach(group[0])
        post.update(group[0])
    numbers = post.of(0)
    assert len(numbers) == 2
    for group, k in order:
        post.answer("r-update", numbers[k], group, version=10 + group, values=float(group + 1))
    for group in range(2):
        assert post.versions[WORKERS[group][0], 0] == [10 + group]
        assert set(post.stub.worker_values(group, 0)) == {group + 1}


def test_values_from_another_process_are_put_in_their_place() -> None:
    post = Post(remote=(1,))
    post.attach(WORKERS[0][0])
    values = post.stub.worker_values(0, 0)
    post.say("get", WORKERS[0][0], version=0)
    for number in post.of(0):
        far = post.slices[number].server == 1
        post.answer("r-get", number, 0, version=0, values=9.0 if far else None)
    for number in post.of(0):
        piece = post.slices[number]
        assert set(values[piece.start : piece.stop]) == {9.0 if piece.server == 1 else 0.0}
    assert post.versions[WORKERS[0][0], 0] == [0]


@pytest.mark.parametrize(("remote", "share_memory"), [((), True), ((0, 1), True), ((), False)])
def test_in_place_means_that_server_and_workers_have_one_memory(remote: Sequence[int], share_memory: bool) -> None:
    post = Post(remote=remote, share_memory=share_memory)
    for group in WORKERS:
        post.attach(group[0])
    in_place = {message.info["in_place"] for message in post.update(WORKERS[0][0], param=1)}
    one = post.stub.server_values(0, 1) is post.stub.worker_values(0, 1)
    assert in_place == {share_memory and not remote}
    assert one == share_memory
    assert (post.stub.worker_values(0, 1) is post.stub.worker_values(1, 1)) == share_memory


def test_a_handled_message_is_not_changed(post: Post) -> None:
    message = Message("get", WORKERS[0][0], post.stub.address, param=0, version=0)
    before = replace(message)
    post.stub.handle(message)
    assert message == before


# -- gradients that leave together -------------------------------------------------------------------


def test_small_gradients_wait_for_others_to_the_same_server() -> None:
    post = Post()
    post.attach(WORKERS[0][0])
    assert [post.say("update", WORKERS[0][0], param=param) for param in (1, 0)] == [[], []]
    sent = post.say("flush", WORKERS[0][0])
    assert {message.dst for message in sent} == set(table(2))
    for message in sent:
        parts = message.parts or (message,)
        assert {part.dst for part in parts} == {message.dst}
        for part in parts:
            piece = post.slices[part.slice]
            grad = post.grads[WORKERS[0][0], piece.param]
            assert np.shares_memory(part.arrays[0], grad)
    order = [part.param for message in sent for part in message.parts or (message,)]
    assert sorted(order) == sorted(piece.param for piece in post.slices)
    assert post.say("flush", WORKERS[0][0]) == []


def test_a_flush_is_for_one_worker_group() -> None:
    post = Post()
    for group in WORKERS:
        post.attach(group[0])
        assert post.say("update", group[0]) == []
    for group in (1, 0):
        assert {message.info["group"] for message in post.say("flush", WORKERS[group][0])} == {group}


def test_gradients_leave_once_there_is_enough_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    post = Post(n_servers=1)
    post.attach(WORKERS[0][0])
    monkeypatch.setattr("singa_dask.comm.exchange.PACK_BYTES", 4 * sum(SIZES))
    assert post.say("update", WORKERS[0][0], param=1) == []
    (message,) = post.say("update", WORKERS[0][0], param=0)
    assert message.kind == "pack"
    assert [part.param for part in message.parts] == [1, 0]
    assert post.say("flush", WORKERS[0][0]) == []


def test_answers_that_come_in_one_message_are_all_taken(post: Post) -> None:
    def answer(number: int) -> Message:
        piece = post.slices[number]
        src = Address.server(0, piece.server)
        return Message("r-update", src, post.stub.address, param=piece.param, slice=number, version=4, step=3,
                       info={"group": 0})  # fmt: skip

    for worker in WORKERS[0]:
        for param in range(2):
            post.update(worker, param)
    (packed,) = pack(map(answer, range(len(post.slices))))
    assert post.stub.handle(packed) == []
    assert [post.versions[WORKERS[0][0], param] for param in range(2)] == [[4], [4]]


# -- workers that start again ------------------------------------------------------------------------


def test_of_two_answers_to_a_request_that_was_sent_again_the_second_counts_for_nothing() -> None:
    post = Post(n_servers=1, remote=(0,))
    post.attach(WORKERS[0][0])
    (number,) = post.of(0)
    post.update(WORKERS[0][0])
    for _ in range(2):
        post.answer("r-update", number, 0, version=1, values=1.0)
    assert post.versions[WORKERS[0][0], 0] == [1]
    post.say("update", WORKERS[0][0], step=4)
    post.answer("r-update", number, 0, version=1, values=1.0)
    assert post.versions[WORKERS[0][0], 0] == [1], "the answer is to the update of the step before"
    post.answer("r-update", number, 0, version=2, values=1.0, step=4)
    assert post.versions[WORKERS[0][0], 0] == [1, 2]


@given(st.lists(st.integers(0, 8), min_size=1, max_size=8))
def test_every_update_brings_a_new_version_whatever_the_server_says(versions: list[int]) -> None:
    post = Post(n_servers=1, remote=(0,))
    post.attach(WORKERS[0][0])
    (number,) = post.of(0)
    post.say("put", WORKERS[0][0], version=3, arrays=(np.zeros(40, np.float32),))
    for step, version in enumerate(versions):
        post.say("update", WORKERS[0][0], step=step)
        post.answer("r-update", number, 0, version, values=0.0, step=step)
    told = [3, *post.versions[WORKERS[0][0], 0]]
    assert len(told) == 1 + len(versions)
    assert all(before < after for before, after in pairwise(told))
    assert all(version <= after for version, after in zip(versions, told[1:], strict=True))


def test_what_comes_from_a_fresh_process_has_a_buffer_of_its_own() -> None:
    post = Post()
    far = Address.stub(1)
    info = {"group": 0, "node": 2, "n": 1, "total": 2}  # it waits for the other half of its sum
    message = Message("update", far, table(2)[0], param=0, slice=0, info=info)
    before = post.stub.receive_buffer(message)
    assert post.stub.receive_buffer(message) is before
    worker = Address.worker(5, 0)
    post.stub.process_of = {**post.stub.process_of, worker: 1}
    post.stub.replace([worker])
    assert post.stub.receive_buffer(message) is not before
