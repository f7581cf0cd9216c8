"""StoredRecords: records at a URL that a net reads instead of the job's own, and how errors name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from singa_dask import fs
from singa_dask.data.stores.tables.csv_records import RECODED
from singa_dask.errors import ConfigError, DataError, Problem, SingaError


class Door(NamedTuple):
    """Words for the options of a caller: text before, form of an option, its values, text behind."""

    before: str
    option: str
    values: Mapping[str, str]
    behind: str = ""


WORDS = {"missing": "mean or a number", "unknown": "ignore"}
COMMAND = Door("pass ", "--{} {}", WORDS)
SERVER = Door("start serve with ", "--{} {}", WORDS)
PYTHON = Door(
    "pass ", "{}={}", {"missing": "'mean' or a number", "unknown": "'ignore'"}, " to load_model or sd.predict"
)


def advised(error: DataError, door: Door, can_fill: bool = True) -> DataError:
    """Return an error about a gap or an unknown category with the options of a caller.

    ``can_fill`` is False for a net whose records are not read from a table, so that these options do not apply.
    """
    remedy = error.remedy
    if remedy is None or remedy.key not in ("missing", "unknown"):
        return error
    # a category, a text or a vector cannot be the mean
    keys = [key for key, value in (("missing", "mean"), ("unknown", "ignore")) if value in remedy.values and can_fill]
    helps = " and ".join(door.option.format(key, door.values[key]) for key in keys)
    return error.saying(f"Leave the record out{f', or {door.before}{helps}{door.behind}' if keys else ''}.")


class StoredRecords(NamedTuple):
    """Records that a net reads instead of the job's own; see `derived_job.with_data`.

    ``named`` is how errors of a command name them, by default by their URL.
    """

    url: str
    backend: str | None = None
    outputs: bool = False
    named: str = ""
    forecasts: tuple[Any, ...] | None = None
    reading: Mapping[str, Any] = MappingProxyType({})

    def renamed(self, error: ConfigError | DataError, layers: Sequence[int], reader: str = "") -> SingaError | None:
        """Return the error with the name of the records; None if it is about the job or a checkpoint.

        ``layers`` are the indices of the layers that read the records, ``reader`` is the name of the first.
        """
        if isinstance(error, DataError):
            if fs.absolute(self.url) not in str(error):
                return None
            if self.named or not self.outputs:
                error = advised(error, COMMAND if self.named else PYTHON)
            return DataError(self._recoded(self._named(str(error)), reader))
        places = [("neuralnet", "layer", index, "store_conf") for index in layers]
        if not error.problems or any(problem.path[:4] not in places for problem in error.problems):
            return None
        named = [self._recoded(self._named(problem.message), reader) for problem in error.problems]
        return ConfigError([Problem((), message) for message in named])

    def _recoded(self, message: str, reader: str) -> str:
        """Return a message of a command that names the option for another encoding."""
        option = f", or pass --set 'neuralnet.layer[{reader}].store_conf.charset=latin-1'"
        return message.replace(RECODED.text, option) if self.named and reader else message

    def _named(self, message: str) -> str:
        named, rest = self.named or self.url, message.removeprefix(fs.absolute(self.url))
        # messages about text files continue with a place, such as ", line 3: "
        return f"{named}{rest}" if rest != message and rest[:1] in ":," else f"{named}: {message}"
