"""Nets of any form on any workers: none waits for ever, each computes what the whole net does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from tests.net.group import Group, same
from tests.net.jobs import dense, job, layer

N_ROWS = 12
N_GRAPHS = 160
N_TESTS = 10
LATER = [(k, pytest.mark.long if k < 4 else pytest.mark.soak) for k in range(1, N_TESTS)]


class Grower:
    """Grows a net layer by layer: dense and activation layers, Dropout, Concate, several readers and losses."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.layers: list[dict[str, Any]] = []
        self.width: dict[str, int] = {}
        self.weights: dict[tuple[int, int], str] = {}
        for k in range(self.draw(1, 2)):
            self.feed(f"data{k}", self.draw(4, 6))
        self.dense("data0", self.draw(4, 7))
        n_losses = self.draw(1, 3)
        for _ in range(self.draw(0, 14 - len(self.layers) - 2 * n_losses)):
            self.grow()
        for k in range(n_losses):
            self.end(f"loss{k}")

    def draw(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def any_layer(self) -> str:
        """Return a layer, more often a late one."""
        names = list(self.width)
        return names[max(self.draw(0, len(names) - 1), self.draw(0, len(names) - 1))]

    def add(self, made: dict[str, Any], width: int) -> str:
        self.layers.append(made)
        self.width[made["name"]] = width
        return str(made["name"])

    def feed(self, name: str, width: int) -> None:
        self.add({"name": name, "type": "Feed", "user_conf": {"shape": [N_ROWS, width], "classes": 4}}, width)

    def grow(self) -> None:
        source, name = self.any_layer(), f"l{len(self.layers)}"
        match self.draw(0, 7):
            case 0 | 1 | 2:
                self.dense(source, self.draw(4, 7))
            case 3 | 4:
                kind = ("STanh", "Sigmoid", "Tanh", "ReLU")[self.draw(0, 3)]
                self.add(layer(name, kind, source), self.width[source])
            case 5:
                self.add(layer(name, "Dropout", source), self.width[source])
            case _:
                sources = list(dict.fromkeys([source, self.any_layer(), self.any_layer()]))
                made = layer(name, "Concate", *sources, concate_conf={"concate_dim": 1})
                self.add(made, sum(self.width[each] for each in sources))

    def dense(self, source: str, width: int) -> str:
        """Add an inner product, now and then with the weights of another."""
        made = dense(f"l{len(self.layers)}", source, width)
        sizes = (self.width[source], width)
        if sizes in self.weights and self.draw(0, 1):
            made["param"][0] = {"name": made["param"][0]["name"], "share_from": self.weights[sizes]}
        self.weights.setdefault(sizes, made["param"][0]["name"])
        return self.add(made, width)

    def end(self, name: str) -> None:
        source, target = self.any_layer(), self.any_layer()
        if self.draw(0, 1):
            self.layers.append(layer(name, "SoftmaxLoss", source, "data0"))
            return
        if self.width[source] != self.width[target] or source == target:
            source = self.dense(source, self.width[target])
        self.layers.append(layer(name, "EuclideanLoss", source, target))

    def placed(self, n_workers: int) -> JobConf:
        """Return the job with each layer somewhere."""
        net = {"partition_dim": self.draw(-1, 1), "layer": [{**each, **self.place(n_workers)} for each in self.layers]}
        return job([], neuralnet=net)

    def place(self, n_workers: int) -> dict[str, int]:
        kind = self.draw(-2, 4)
        if kind == 2:
            return {}
        return {"location": self.draw(0, n_workers - 1)} if kind > 2 else {"partition_dim": max(kind, -1)}


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=mark) for k, mark in LATER)])
def test_any_graph_on_any_workers(part: int) -> None:
    for seed in range(part, N_GRAPHS, N_TESTS):
        grower = Grower(np.random.default_rng(seed))
        assert 3 <= len(grower.layers) <= 14
        n_workers = seed // N_TESTS % 4 + 1
        one, group = Group(job(grower.layers), 1), Group(grower.placed(n_workers), n_workers)
        np.testing.assert_allclose(group.train(2), one.train(2), rtol=1e-10, err_msg=f"seed {seed}")
        same(group, one)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(k, marks=pytest.mark.soak) for k in range(2, 20))])
def test_order_of_arrival_does_not_matter(seed: int) -> None:
    grower = Grower(np.random.default_rng(1000 + seed))
    placed = grower.placed(4)
    prompt, late = Group(placed, 4), Group(placed, 4, late=np.random.default_rng(seed))
    assert prompt.train(2) == late.train(2)
