"""Secrets in options of filesystems and in URLs: taken from the environment, hidden in what is shown or stored.

What is shown or stored can also be encoded: names of files need not be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
"""Stands for a secret."""
SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|signature|delegation|^(sig|sas|key|auth)$|(access|account|api|shared|private)_?key$",
    re.IGNORECASE,
)
VARIABLE = re.compile(r"\$\{(\w+)\}")
# user:password@ of any URL, and whatever stands there in one of HTTP
USER = re.compile(r"(?<=//)[^\s/@:]*:([^\s/@]*)(?=@)|(?<=http://)[^\s/@]+(?=@)|(?<=https://)[^\s/@]+(?=@)")
# a parameter of a query; an option of a command line
PAIRS = (
    re.compile(r"([?&])([\w.-]+)=([^\s&\"',;]+)"),
    re.compile(r"(storage[-_]options?[\s\",.]+(?:[\w-]+\.)*)([\w-]+)=([^\s\"',;]+)"),
)
# what Python makes of bytes of a file name that are not UTF-8, and halves of pairs in JSON
SURROGATE = re.compile("[\ud800-\udfff]")
MIN_LENGTH = 6
"""Shorter values are words of other texts, too."""

_known: set[str] = set()


def readable(text: str) -> str:
    r"""Return a text that can be encoded: bytes of a file name that are not UTF-8 become ``\xe9``."""
    return SURROGATE.sub(escaped, text)


def escaped(found: re.Match[str]) -> str:
    r"""Return a character as Python writes it, and the surrogate of a byte as ``\xe9``."""
    code = ord(found[0])
    return rf"\x{code - 0xDC00:02x}" if 0xDC80 <= code < 0xDD00 else ascii(found[0])[1:-1]


def redact(text: str) -> str:
    """Hide what is secret in a text: passwords in URLs, and the values that `reveal` has returned in this process.

    The text is `readable`, too.
    """
    text = readable(text)
    # the longest first, as one may be part of another; other threads may add some meanwhile
    for value in sorted(_known.copy(), key=lambda each: (-len(each), each)):
        text = text.replace(value, HIDDEN)
    text = USER.sub(HIDDEN, text)
    for pattern in PAIRS:
        text = pattern.sub(lambda found: found[0] if is_open(found[2], "") else f"{found[1]}{found[2]}={HIDDEN}", text)
    return text


def is_open(key: str, value: str) -> bool:
    """Return whether an option of a filesystem may be shown: by its name, or as it names a variable only."""
    return SECRET.search(key) is None or VARIABLE.fullmatch(value) is not None


def reveal(options: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Return options of a filesystem in which ``${NAME}`` is the value of an environment variable of this process.

    Parameters
    ----------
    options : mapping
    url : str
        Of the file; a password in it is hidden from now on, too.

    Raises
    ------
    ValueError
        A variable is not set, or a value was hidden when the job was stored.
    """
    _known.update(found[1] for found in USER.finditer(url) if len(found[1] or "") >= MIN_LENGTH)
    return {key: _reveal(key, value) for key, value in options.items()}


def _reveal(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _reveal(f"{key}.{name}", each) for name, each in value.items()}
    if not isinstance(value, str):
        return value
    if value == HIDDEN:
        raise ValueError(
            f"storage_options.{key}: runs do not keep secrets. Write {key}: ${{NAME}} in the job file, and set this "
            "environment variable in all processes."
        )
    if found := VARIABLE.fullmatch(value):
        if found[1] not in os.environ:
            raise ValueError(
                f"storage_options.{key}: the environment variable {found[1]!r} is not set in this process."
            )
        value = os.environ[found[1]]
    if not is_open(key.rpartition(".")[2], "") and len(value) >= MIN_LENGTH:
        _known.add(value)
    return value
