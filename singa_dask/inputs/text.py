"""Layers that read and write characters.

A character is represented by its index in a vocabulary. A vocabulary is a file that contains each character once.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, TextIO

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Size
from singa_dask.data.stores.texts.vocabulary import encode_text, vocabulary_of
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.fs.open_bytes import decode_text
from singa_dask.inputs.input import InputLayer
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Traits
from singa_dask.ops.contract import Array


class CharRNNConf(Conf):
    """``char_rnn_conf``: characters of a text (SINGA's CharRNNProto)."""

    block_key = "char_rnn_conf"

    path: str = ""
    """URL or path of the text: UTF-8, gzipped or not."""
    vocab_path: str = ""
    """File that contains each character once, in the order of the characters' numbers. If empty, the vocabulary is the
    characters of the text, in the order of their code points."""
    unroll_len: Size = 50
    """Number of characters per step. It must equal ``unroll_len`` of the net."""
    batchsize: Size = 1
    """Number of segments of the text that a worker group reads in parallel."""


# number of characters written between two flushes
FLUSH_EVERY = 64


def read_vocabulary(conf: CharRNNConf) -> str:
    """Return the characters in the file ``vocab_path``; without this key, the characters of the text."""
    return decode_text(conf.vocab_path) if conf.vocab_path else vocabulary_of(decode_text(conf.path))


@LAYERS.register()
class CharRNN(InputLayer):
    """Windows of a text: (N, unroll_len + 1) numbers of characters.

    Column t has the character of time step t. The last column is only the label of the last time step. The text is
    divided into segments of equal length, one for each row of the batches of all worker groups. Each batch has the next
    window of each segment. A window starts at the last character of the previous window.

    After a window that starts in the last ``unroll_len`` characters of a segment, all rows start again at the beginning
    of their segments. Such a window ends in the next segment; in the last segment it ends at the start of the text.
    (SINGA 0.3 reads past the end of the text there.)
    """

    options_class = CharRNNConf
    _text: Array | None = None
    _cursor: Mapping[str, Any] | None = None
    _offset = _n_ahead = 0

    def setup(self) -> None:
        text, n_workers = self.options, self.site.batch_shard.count
        problems = []
        if not text.path:
            problems.append(Problem(("char_rnn_conf", "path"), f"{self.conf.type} needs this key."))
        if text.batchsize % n_workers:
            message = f"expected a multiple of the {n_workers} workers of a group, got {text.batchsize}. "
            message += f"Set {-(-text.batchsize // n_workers) * n_workers}."
            problems.append(Problem(("char_rnn_conf", "batchsize"), message))
        if problems:
            raise ConfigError(problems)
        self.add_output((text.batchsize // n_workers, text.unroll_len + 1), requires_grad=False, dtype=np.int32)

    def forward(self, phase: Phase) -> None:
        text = self._open() if self._text is None else self._text
        self.context.stream_start = self._offset == 0
        self.ops.copy(text[self._places + self._offset], out=self.features[0].data)
        self._offset += self.options.unroll_len
        if self._offset >= self._length:
            self._offset = 0

    def _open(self) -> Array:
        text = self._read_text()
        feature, context, window = self.features[0], self.context, self.options.unroll_len
        self._length = self._segment(len(text))
        self._identity = {"length": self._length, "crc": zlib.crc32(text)}
        # append the start of the text, for the window that starts at the end of the last segment
        windows = self._text = np.concatenate([text, text[:window]])
        rows = context.group * self.options.batchsize + self.first_row(feature.shape[0]) + np.arange(feature.shape[0])
        self._places = rows[:, None] * self._length + np.arange(window + 1)
        if self._cursor is not None:
            self._go_to(self._cursor)
        self._offset = self._moved(self._offset, self._length)
        self._n_ahead = 0
        return windows

    def _read_text(self) -> Array:
        """Return the numbers of the characters of the text."""
        conf, text = self.options, decode_text(self.options.path)
        return encode_text(text, decode_text(conf.vocab_path) if conf.vocab_path else vocabulary_of(text), conf.path)

    def _segment(self, n_characters: int) -> int:
        """Return the length of a segment."""
        conf, n_groups = self.options, self.context.n_groups
        length = n_characters // (conf.batchsize * n_groups)
        if length <= conf.unroll_len:
            groups = f"{n_groups} groups x " if n_groups > 1 else ""
            raise DataError(
                f"{conf.path}: the text has {n_characters} characters. Expected {groups}batchsize {conf.batchsize} x "
                f"(unroll_len "
                f"{conf.unroll_len} + 1) = {n_groups * conf.batchsize * (conf.unroll_len + 1)} at least."
            )
        return length

    def check_source(self) -> None:
        """Check that the text and the vocabulary can be read, and that they fit each other and the job.

        Raises
        ------
        ConfigError
            A check failed. The path of the error is relative to the layer.
        """
        key = "vocab_path" if self.options.vocab_path else "path"
        try:
            read_vocabulary(self.options)
            key = "path"
            self._segment(len(self._read_text()))
        except DataError as error:
            raise ConfigError(Problem(("char_rnn_conf", key), str(error))) from error

    @property
    def epoch(self) -> float | None:
        """Number of passes over the segments so far; each step reads one window of every segment."""
        if self._text is None:
            return None
        window = self.options.unroll_len
        n_windows = -(-self._length // window)
        # count the window of this step once, whether or not it has been read already
        n_read = self.context.step + (self._offset // window - self.context.step) % n_windows
        return n_read / n_windows

    def steps_per_epoch(self, batch_size: int = 0) -> Fraction:
        length = self._segment(len(self._read_text()))
        return Fraction(-(-length // self.options.unroll_len))

    def cursor(self) -> dict[str, Any] | None:
        if self._text is not None:
            return {"offset": self._offset, **self._identity}
        if self._cursor is None:
            return None
        return {**self._cursor, "offset": self._moved(self._cursor["offset"], self._cursor["length"])}

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Continue at a position that `cursor` has returned.

        Raises
        ------
        DataError
            The text or its segments have changed. If the text is not read yet, the error is raised at the first batch.
        """
        self._cursor, self._n_ahead = dict(cursor), 0
        if self._text is not None:
            self._go_to(cursor)

    def advance(self, n_batches: int) -> None:
        self._n_ahead += n_batches
        if self._text is not None:
            self._offset = self._moved(self._offset, self._length)
            self._n_ahead = 0

    def _moved(self, offset: int, length: int) -> int:
        """Return the offset in a segment after skipping windows."""
        window = self.options.unroll_len
        return (offset // window + self._n_ahead) % -(-length // window) * window

    def _go_to(self, cursor: Mapping[str, Any]) -> None:
        if {key: cursor.get(key) for key in self._identity} != self._identity:
            raise DataError(
                f"{self.options.path}: the text, its vocabulary or batchsize has changed since the run stopped."
            )
        self._offset = int(cursor["offset"])


@LAYERS.register()
class CharRNNOutput(Layer):
    """Write the character of each row of numbers, (N, 1), to ``file``; the default is standard output.

    ``char_rnn_conf`` names the file with the vocabulary.
    """

    options_class = CharRNNConf
    traits = Traits(role="output")
    file: TextIO | None = None
    _n_written = 0

    def setup(self) -> None:
        if not (self.options.vocab_path or self.options.path):
            raise ConfigError(Problem(("char_rnn_conf", "vocab_path"), f"{self.conf.type} needs this key."))

    @cached_property
    def vocabulary(self) -> str:
        """The characters of the vocabulary, read on first use."""
        return read_vocabulary(self.options)

    def forward(self, phase: Phase) -> None:
        file, vocabulary = self.file or sys.stdout, self.vocabulary
        for number in self.ops.to_host(self.rows())[:, 0].tolist():
            if not 0 <= number < len(vocabulary):
                message = f"the vocabulary has {len(vocabulary)} characters, and none has the number {int(number)}."
                raise DataError(f"{self.options.vocab_path or self.options.path}: {message}")
            file.write(vocabulary[int(number)])
            self._n_written += 1
        if self._n_written >= FLUSH_EVERY:
            file.flush()
            self._n_written = 0

    def check_source(self) -> None:
        """Check that the vocabulary can be read.

        Raises
        ------
        ConfigError
            It cannot be read. The path of the error is relative to the layer.
        """
        try:
            read_vocabulary(self.options)
        except DataError as error:
            raise ConfigError(Problem(("char_rnn_conf", "vocab_path"), str(error))) from error

    def close(self) -> None:
        if self._n_written:
            (self.file or sys.stdout).flush()
            self._n_written = 0
