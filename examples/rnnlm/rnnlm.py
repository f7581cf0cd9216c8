"""SINGA's examples/rnnlm: a recurrent language model of words, as four layers of a user's own.

A step reads windows of words: at most ``max_window``, ended by the end of a line. Words are divided into classes, and
P(word) = P(class) P(word | class), so that a step computes the scores of all classes, and of the words of one class,
instead of those of all words (Goodman, 2001; Mikolov et al., 2011). In the shapes below B are the windows of a step,
T is ``max_window``, D the size of the hidden state. The loss is the mean over words, its gradient that of the sum over
the words of a window, as SINGA's.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from singa_dask import ConfigError, DataError, InputLayer, Layer, Phase, Problem, StoreConf, Traits, open_store

END = 0  # number of the word that ends a line
WORD, CLASS, START, STOP = range(4)  # columns of a record, as `singa-dask convert words` makes them


class Data(InputLayer):
    """Windows of words: (B, T + 1, 4) integers, first the word before the window; -1 where the window has ended.

    ``store_conf`` says where the words are, and in ``batchsize`` how many windows a step of the worker group has;
    ``user_conf`` says ``max_window``.
    """

    options_class = StoreConf

    def setup(self) -> None:
        store = self.conf.block(StoreConf)
        if not store.path or not store.batchsize:
            raise ConfigError(Problem(("store_conf",), "expected this block, with path and batchsize."))
        self.batch, self.n_batches = store.batchsize[0], 0
        self.starts: list[int] = []
        self.max_window = int(self.conf.user_conf.get("max_window", 10))
        shape = (self.batch // self.site.batch_shard.count, self.max_window + 1, 4)
        self.add_output(shape, requires_grad=False, dtype=np.int64)

    def check_source(self) -> None:
        try:
            self._read()
        except DataError as error:
            raise ConfigError(Problem(("store_conf", "path"), str(error))) from None

    def _read(self) -> None:
        """Read all words, and find where windows begin."""
        store_conf = self.conf.block(StoreConf)
        with open_store(store_conf.path, store_conf.backend or None, store_conf.storage_options) as store:
            if "data" not in store.schema or store.schema["data"].shape != (4,):
                raise DataError(f"{store.url}: these are no words. Make them by: singa-dask convert words.")
            blocks = [store.read_block(block.id)["data"].astype(np.int64) for block in store.blocks]
        self.words = np.concatenate(blocks)
        lines = [0, *(np.flatnonzero(self.words[:, WORD] == END) + 1).tolist(), len(self.words)]
        self.starts = [at for line, after in pairwise(lines) for at in range(line, after, self.max_window)]
        self.starts.append(len(self.words))

    def forward(self, phase: Phase) -> None:
        if not self.starts:
            self._read()
        context, data = self.context, self.features[0].data
        # groups take their batches in turn, and a batch is shared by the workers of a group
        first = (self.n_batches * context.n_groups + context.group) * self.batch + self.first_row(len(data))
        data[...] = 0
        data[..., WORD] = -1
        for row in range(len(data)):
            window = (first + row) % (len(self.starts) - 1)
            start, stop = self.starts[window : window + 2]
            data[row, 0] = self.words[start - 1]
            data[row, 1 : 1 + stop - start] = self.words[start:stop]
        self.n_batches += 1

    def cursor(self) -> dict[str, Any]:
        return {"batches": self.n_batches}

    def seek(self, cursor: Any) -> None:
        self.n_batches = cursor["batches"]

    def advance(self, n_batches: int) -> None:
        self.n_batches += n_batches


class Embedding(Layer):
    """A row of the weights for each word but the last of its window: (B, T, D)."""

    traits = Traits(params=("weight",))

    def setup(self) -> None:
        n, columns, _ = self.sources[0].shape
        self.add_param((self.conf.user_conf["vocab_size"], self.conf.user_conf["word_dim"]))
        self.add_output((n, columns - 1, self.conf.user_conf["word_dim"]))

    def forward(self, phase: Phase) -> None:
        words, weight = self.sources[0].data[:, :-1, WORD], self.params[0].data
        if words.max() >= len(weight):
            raise DataError(f"layer {self.name}: word {words.max()} is out of range, vocab_size is {len(weight)}.")
        self.features[0].data[...] = weight[words]

    def backward(self, phase: Phase) -> None:
        words, grad = self.sources[0].data[:, :-1, WORD], self.params[0].grad
        grad[...] = 0
        # a word that comes twice in a window has two gradients; SINGA keeps one of them
        np.add.at(grad, words, self.features[0].grad)


class Hidden(Layer):
    """h_t = sigmoid(h_(t-1) W + x_t), zeros before the first word of a window: (B, T, D)."""

    traits = Traits(params=("weight",))

    def setup(self) -> None:
        self.add_param((self.sources[0].shape[2], self.sources[0].shape[2]))
        self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        x, h, weight = self.sources[0].data, self.features[0].data, self.params[0].data
        for t in range(h.shape[1]):
            z = x[:, t] + h[:, t - 1] @ weight if t else x[:, t]
            h[:, t] = 1 / (1 + np.exp(-z))

    def backward(self, phase: Phase) -> None:
        h, gh, gx = self.features[0].data, self.features[0].grad, self.sources[0].grad
        weight, gw = self.params[0].data, self.params[0].grad
        gw[...] = 0
        later = 0.0
        for t in reversed(range(h.shape[1])):
            gz = (gh[:, t] + later) * h[:, t] * (1 - h[:, t])
            gx[:, t] = gz
            later = gz @ weight.T
            if t:
                gw += h[:, t - 1].T @ gz


class Loss(Layer):
    """-log P(word) of each word of a window: P(class) P(word | class), two softmaxes; shows perplexity, too.

    Sources are the hidden states and the words. Its output is (B, T), 0 where a window has ended.
    """

    traits = Traits(n_sources=(2, 2), params=("word_weight", "class_weight"), role="loss")

    def setup(self) -> None:
        n, n_steps, size = self.sources[0].shape
        self.add_param((self.conf.user_conf["vocab_size"], size))
        self.add_param((self.conf.user_conf["n_classes"], size))
        self.add_output((n, n_steps))

    def forward(self, phase: Phase) -> None:
        targets = self.sources[1].data[:, 1:]
        self.there = targets[..., WORD] >= 0
        self.h, self.targets = self.sources[0].data[self.there], targets[self.there]
        word_weight, class_weight = (param.data for param in self.params)
        # what is subtracted from a one-hot row to get the gradient: of the classes, and of the words of each class
        self.by_class = _softmax(self.h @ class_weight.T)
        p = self.by_class[np.arange(len(self.h)), self.targets[:, CLASS]]
        self.by_word = []
        for rows, start, stop in self._classes():
            within = _softmax(self.h[rows] @ word_weight[start:stop].T)
            p[rows] *= within[np.arange(len(rows)), self.targets[rows, WORD] - start]
            self.by_word.append(within)
        loss = self.features[0].data
        loss[...] = 0
        loss[self.there] = -np.log(p)
        self.add_metric("loss", float(loss.sum()), len(p))

    def _classes(self) -> list[tuple[Any, int, int]]:
        """Return for each class that is there: the rows of its words, its first word, and the one after its last."""
        return [
            (rows, *self.targets[rows[0], [START, STOP]].tolist())
            for each in np.unique(self.targets[:, CLASS])
            if len(rows := np.flatnonzero(self.targets[:, CLASS] == each))
        ]

    def take_metrics(self) -> dict[str, tuple[float, float]]:
        taken = super().take_metrics()
        if "loss" in taken:
            total, count = taken["loss"]
            taken["ppl"] = (count * math.exp(total / count), count)
        return taken

    def backward(self, phase: Phase) -> None:
        word_weight, class_weight = (param.data for param in self.params)
        word_grad, class_grad = (param.grad for param in self.params)
        scale = 1 / len(self.features[0].data)
        gz = self.by_class * scale
        gz[np.arange(len(gz)), self.targets[:, CLASS]] -= scale
        class_grad[...] = gz.T @ self.h
        gh = gz @ class_weight
        word_grad[...] = 0
        for (rows, start, stop), within in zip(self._classes(), self.by_word, strict=True):
            gz = within * scale
            gz[np.arange(len(rows)), self.targets[rows, WORD] - start] -= scale
            word_grad[start:stop] = gz.T @ self.h[rows]
            gh[rows] += gz @ word_weight[start:stop]
        self.sources[0].grad[...] = 0
        self.sources[0].grad[self.there] = gh


def _softmax(z: Any) -> Any:
    """Return the softmax of each row."""
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)
