"""Text as numbered tokens: words, characters, or tokens of a Hugging Face tokenizer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask import fs
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Size
from singa_dask.conf.mistakes import Finding
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import decode_text
from singa_dask.lazy import LazyModule, require

pc = LazyModule("pyarrow.compute")

# RE2 pattern of a character that is neither part of a word nor a blank
MARK = r"([^\p{L}\p{M}\p{N}_\s])"
PADDING, UNKNOWN = -1, 0
# columns with a lower median number of words have names, not texts
MIN_WORDS = 4
# a character of a script that puts no blanks between words
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
# maximum length that is chosen automatically for texts
MAX_LENGTH = 256


class TextConf(Conf):
    """Encoding of the text in a column: an entry of ``texts``."""

    length: Size
    """Tokens of a record. Longer texts are truncated; shorter ones are padded with -1, which Embedding and PaddingMask
    ignore."""
    tokens: Literal["words", "characters"] = "words"
    """Words are runs of letters, digits and ``_``; every other character except blanks is a word."""
    vocab_size: Annotated[int, Field(ge=2)] = 10000
    """Maximum number of different tokens: 0 for unknown tokens, and from 1 on the most frequent ones of the training
    data; equally frequent ones are sorted by their text."""
    lowercase: bool = False
    """Whether texts are converted to lower case."""
    tokenizer: str = ""
    """URL of a ``tokenizer.json`` of Hugging Face, whose tokens and numbers are used instead. Its special tokens are
    added."""

    def rules(self) -> Iterator[Finding]:
        """Check that a job with a tokenizer sets no keys that the tokenizer determines."""
        for key in ("tokens", "vocab_size", "lowercase") if self.tokenizer else ():
            if getattr(self, key) != type(self).model_fields[key].default:
                yield (key,), "the tokenizer decides it. Leave it out."


@dataclass(frozen=True)
class TextCodec:
    """Splits text into tokens, and numbers the tokens.

    Attributes
    ----------
    length, tokens, vocab_size, lowercase
        See `TextConf`.
    tokenizer : str
        Content of ``tokenizer.json``, or the URL of the file before it is read; empty if there is no tokenizer.
    vocabulary : tuple of str
        The tokens with the numbers 1, 2, and so on.
    """

    length: int
    tokens: str = "words"
    vocab_size: int = 10000
    lowercase: bool = False
    tokenizer: str = ""
    vocabulary: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> TextCodec:
        """Return the codec for a result of ``dataclasses.asdict``, or for the values of a `TextConf`."""
        return cls(**{**described, "vocabulary": tuple(described.get("vocabulary", ()))})

    def reads_like(self, other: TextCodec) -> bool:
        """Return whether both codecs have the same settings. Vocabularies are not compared."""
        has_own = bool(self.tokenizer) == bool(other.tokenizer)
        mine, others = (replace(each, tokenizer="", vocabulary=()) for each in (self, other))
        return has_own and mine == others

    def with_tokenizer(self, where: str, storage_options: fs.Options) -> TextCodec:
        """Read the file of the tokenizer, if there is one; return the codec with its content.

        Raises a `DataError` if the file cannot be read, or is not a tokenizer.
        """
        if not self.tokenizer:
            return self
        content = decode_text(self.tokenizer, storage_options)
        codec, url = replace(self, tokenizer=content), self.tokenizer
        try:
            codec.encode(pa.array([""]))
        except Exception as error:
            # the tokenizers package raises plain Exceptions
            if type(error) is not Exception:
                raise
            raise DataError(f"{where}: {url}: not a tokenizer.json of Hugging Face: {error}.") from None
        return codec

    @cached_property
    def _hugging_face(self) -> Any:
        tokenizer = require("tokenizers", "text", "texts with a tokenizer").Tokenizer.from_str(self.tokenizer)
        tokenizer.no_padding()
        # the package ``tokenizers`` truncates texts before it adds special tokens
        tokenizer.enable_truncation(self.length)
        return tokenizer

    def count(self, texts: pa.Array, counts: Counter[str]) -> npt.NDArray[np.int64]:
        """Add the tokens of texts to ``counts``; return the number of tokens of each text, (n,)."""
        texts = self._folded(texts)
        if self.tokens == "characters":
            counts.update("".join(texts.to_pylist()))
            return np.asarray(pc.utf8_length(texts), np.int64)
        lengths, words = _words(texts)
        by_word = pc.value_counts(words)
        counts.update(dict(zip(by_word.field(0).to_pylist(), by_word.field(1).to_pylist(), strict=True)))
        return lengths

    def learned(self, counts: Mapping[str, int]) -> TextCodec:
        """Return the codec with a vocabulary of the most frequent tokens."""
        by_count = sorted(counts, key=lambda token: (-counts[token], token))
        return replace(self, vocabulary=tuple(by_count[: self.vocab_size - 1]))

    def encode(self, texts: pa.Array) -> npt.NDArray[np.int64]:
        """Return the numbers of the tokens of each text, (n, length). No text may be null.

        An empty text is encoded as one unknown token; if there is a tokenizer, as the tokenizer's special tokens and
        padding.
        """
        lengths, numbers = self._numbers(self._folded(texts))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        places = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        kept = places < self.length
        encoded = np.full((len(lengths), self.length), PADDING, np.int64)
        if not self.tokenizer:
            encoded[lengths == 0, 0] = UNKNOWN
        encoded[rows[kept], places[kept]] = numbers[kept]
        return encoded

    def _numbers(self, texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the number of tokens of each text, (n,), and the numbers of all tokens, text by text."""
        if self.tokenizer:
            ids = [each.ids for each in self._hugging_face.encode_batch(texts.to_pylist())]
            return np.array(list(map(len, ids)), np.int64), np.array(list(chain.from_iterable(ids)), np.int64)
        if self.tokens == "words":
            lengths, words = _words(texts)
            indices = pc.index_in(words, self._known)
            return lengths, pc.fill_null(indices, UNKNOWN - 1).to_numpy().astype(np.int64) + 1
        codes = np.frombuffer("".join(texts.to_pylist()).encode("utf-32-le"), np.uint32)
        known, order = self._known_codes
        at = order[np.minimum(np.searchsorted(known, codes, sorter=order), len(known) - 1)]
        lengths = pc.utf8_length(texts).to_numpy().astype(np.int64)
        return lengths, np.where(known[at] == codes, at + 1, UNKNOWN)

    def _folded(self, texts: pa.Array) -> pa.Array:
        return pc.utf8_lower(texts) if self.lowercase else texts

    @cached_property
    def _known(self) -> pa.Array:
        return pa.array(self.vocabulary, pa.string())

    @cached_property
    def _known_codes(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Code points of the vocabulary, and the order that sorts them."""
        known = np.array(list(map(ord, self.vocabulary)), np.uint32)
        return known, np.argsort(known)


@dataclass(frozen=True)
class TextMeasure:
    """Lengths of texts in words or characters, and the number of distinct tokens in lower case.

    Attributes
    ----------
    median, longest : int
        Median and largest number of tokens in a text.
    distinct : int
    length, vocab_size : int
        Suggested values for `TextConf`. ``length`` is enough for 95 % of the texts; it is between 2 and `MAX_LENGTH`.
        ``vocab_size`` is the number of tokens that occur more than once, plus one for all other tokens.
    tokens : {"words", "characters"}
    """

    median: int
    longest: int
    distinct: int
    length: int
    vocab_size: int
    tokens: str = "words"

    @classmethod
    def of(cls, texts: pa.Array) -> TextMeasure:
        """Measure texts without nulls: in words, or in characters for names and scripts without blanks."""
        measure = cls.of_columns([{"": texts}])[""]
        unspaced, letters = pc.sum(pc.count_substring_regex(texts, UNSPACED)), pc.sum(pc.utf8_length(texts))
        if measure.median >= MIN_WORDS and 2 * unspaced.as_py() < letters.as_py():
            return measure
        return cls.of_columns([{"": texts}], "characters")[""]

    @classmethod
    def of_columns(cls, blocks: Iterable[Mapping[str, pa.Array]], tokens: str = "words") -> dict[str, TextMeasure]:
        """Measure columns of texts without nulls, block by block."""
        codec, lengths = TextCodec(1, tokens, lowercase=True), defaultdict[str, list[npt.NDArray[np.int64]]](list)
        counts = defaultdict[str, Counter[str]](Counter)
        for block in blocks:
            for name, texts in block.items():
                lengths[name].append(codec.count(texts, counts[name]))
        return {name: cls._of(np.concatenate(lengths[name]), counts[name], tokens) for name in lengths}

    @classmethod
    def _of(cls, lengths: npt.NDArray[np.int64], counts: Counter[str], tokens: str) -> TextMeasure:
        low, high = np.quantile(lengths, [0.5, 0.95], method="higher").tolist() if len(lengths) else (0, 0)
        repeated = sum(n > 1 for n in counts.values())
        size = min(max(repeated, 1) + 1, TextCodec(1).vocab_size)
        return cls(low, int(lengths.max(initial=0)), len(counts), min(max(high, 2), MAX_LENGTH), size, tokens)

    def __str__(self) -> str:
        return f"{self.distinct} different {self.tokens}; of a text {self.median} (median) to {self.longest}"


def _words(texts: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Return the number of words of each text, (n,), and all words, text by text."""
    spaced = pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, MARK, r" \1 "))
    words = pc.utf8_split_whitespace(spaced)
    # utf8_split splits a text without words into one empty string
    lengths = np.where(pc.utf8_length(spaced).to_numpy() == 0, 0, pc.list_value_length(words).to_numpy())
    flat = words.flatten()
    return lengths.astype(np.int64), flat.filter(pc.not_equal(flat, ""))
