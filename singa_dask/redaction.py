"""Secrets in filesystem options and URLs: read them from the environment, and hide them in texts.

`redact` also makes texts encodable, because file names may have bytes that are not UTF-8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
"""Replaces a secret."""
SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|signature|delegation|^(sig|sas|key|auth)$|(access|account|api|shared|private)_?key$",
    re.IGNORECASE,
)
VARIABLE = re.compile(r"\$\{(\w+)\}")
# user:password@ in any URL, and any user name in an HTTP URL
USER = re.compile(r"(?<=//)[^\s/@:]*:([^\s/@]*)(?=@)|(?<=http://)[^\s/@]+(?=@)|(?<=https://)[^\s/@]+(?=@)")
# patterns for a parameter of a query, and for a command-line option
PAIRS = (
    re.compile(r"([?&])([\w.-]+)=([^\s&\"',;]+)"),
    re.compile(r"(storage[-_]options?[\s\",.]+(?:[\w-]+\.)*)([\w-]+)=([^\s\"',;]+)"),
)
# surrogates, which Python decodes from file names that are not UTF-8, and lone surrogates in JSON
SURROGATE = re.compile("[\ud800-\udfff]")
MIN_LENGTH = 6
"""Minimum length of a hidden value. Shorter values occur in ordinary text, and are not hidden."""

_known: set[str] = set()


def readable(text: str) -> str:
    r"""Return a text that can be encoded: bytes of a file name that are not UTF-8 become ``\xe9``."""
    return SURROGATE.sub(escaped, text)


def escaped(found: re.Match[str]) -> str:
    r"""Return the Python escape of a matched character; a byte that is not UTF-8 becomes ``\xe9``."""
    code = ord(found[0])
    return rf"\x{code - 0xDC00:02x}" if 0xDC80 <= code < 0xDD00 else ascii(found[0])[1:-1]


def redact(text: str) -> str:
    """Hide passwords in URLs, and all secrets that `reveal` has returned in this process.

    The result can be encoded; see `readable`.
    """
    text = readable(text)
    # hide the longest values first, because one may contain another; copy the set, because other threads may add values
    for value in sorted(_known.copy(), key=lambda each: (-len(each), each)):
        text = text.replace(value, HIDDEN)
    text = USER.sub(HIDDEN, text)
    for pattern in PAIRS:
        text = pattern.sub(lambda found: found[0] if is_open(found[2], "") else f"{found[1]}{found[2]}={HIDDEN}", text)
    return text


def is_open(key: str, value: str) -> bool:
    """Return whether a filesystem option may be shown: its name is harmless, or it refers to a variable."""
    return SECRET.search(key) is None or VARIABLE.fullmatch(value) is not None


def reveal(options: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Return filesystem options in which ``${NAME}`` is replaced by environment variables of this process.

    From now on, `redact` hides the secret values and a password in the URL of the file.

    Raises
    ------
    ValueError
        A variable is not set. Or an option has no value, because secrets are not stored.
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
