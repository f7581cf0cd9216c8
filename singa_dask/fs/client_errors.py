"""Convert errors of filesystem clients to `DataError`s that name the URL."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from fsspec.exceptions import FSTimeoutError

from singa_dask.errors import DataError, MissingPackageError

# packages of client libraries whose errors are not subclasses of `OSError`
CLIENTS = ("aiohttp", "asyncio", "botocore")
# HTTP status codes after which a later request may succeed
BUSY = (408, 425, 429, 500, 502, 503, 504)
PACKAGE = str(Path(__file__).parents[1])
NO_RANGES = "the server sends whole files only, not ranges of bytes. Copy the file first."


@contextlib.contextmanager
def errors_name(url: str) -> Iterator[None]:
    """Convert filesystem errors in the context to `DataError`. The messages name the URL."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        if text := refusal(error):
            raise DataError(f"{url}: {text}") from error
        raise DataError(f"{url}: no such file or directory.") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{url}: this is a file, expected a directory.") from error
    except IsADirectoryError as error:
        raise DataError(f"{url}: this is a directory, expected a file.") from error
    except (OSError, ValueError, ImportError) as error:
        text, kind = message_of(error), MissingPackageError if isinstance(error, ImportError) else DataError
        raise kind(text if text.startswith(url) else f"{url}: {text}") from error
    except TypeError as error:
        if text := _unknown_option(error):
            raise DataError(f"{url}: {text}") from error
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in CLIENTS:
            raise
        raise DataError(f"{url}: {message_of(error)}") from error


def message_of(error: BaseException) -> str:
    """Return the message of a filesystem error."""
    if status := getattr(error, "status", None):
        return f"the server answers {status} {getattr(error, 'message', '')}."
    if status == 0:  # status 0 stands for too many redirects, where aiohttp has no message
        return f"{type(error).__name__}."
    return str(error) or f"{type(error).__name__}: the server does not answer in time."


def may_pass(error: BaseException) -> bool:
    """Return whether a retry may succeed, because a web server was busy, silent, or closed the connection."""
    is_of_client = isinstance(error, FSTimeoutError) or type(error).__module__.startswith("aiohttp.")
    return is_of_client and getattr(error, "status", 503) in BUSY


def refusal(error: FileNotFoundError) -> str:
    """Return why a server refused a file that fsspec reports as missing; empty if the file is missing."""
    cause = error.__cause__
    if cause is None or isinstance(cause, FileNotFoundError) or getattr(cause, "status", 0) in (404, 410):
        return ""
    if isinstance(cause, TypeError):
        return _unknown_option(cause)
    is_of_client = isinstance(cause, OSError) or type(cause).__module__.startswith(CLIENTS)
    return message_of(cause) if is_of_client else ""


def _unknown_option(error: TypeError) -> str:
    """Return a message if a filesystem was called with an unknown option; else an empty text."""
    option = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if option is None or traceback.extract_tb(error.__traceback__)[-1].filename.startswith(PACKAGE):
        return ""
    return f"storage_options: this filesystem has no option {option[1]!r}."


def with_errno(kind: type[OSError], number: int, text: str) -> OSError:
    """Return an `OSError` with an errno, whose message does not contain the number."""
    # set errno afterwards, because an errno argument would add "[Errno ...]" to the text
    error = kind(text)
    error.errno = number
    return error
