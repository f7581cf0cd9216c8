"""StoredRecords: records at a URL that a net reads instead of the job's own, and how errors name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from singa_dask import fs
from singa_dask.data.stores.tables.csv_records import RECODED
from singa_dask.errors import ConfigError, DataError, Problem, SingaError


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
            remedy = error.remedy
            if remedy is not None and remedy.key in ("missing", "unknown") and (self.named or not self.outputs):
                # only numbers have a mean: categories, texts and vectors have none
                values = {"missing": "mean or a number"} if "mean" in remedy.values else {}
                values |= {"unknown": "ignore"} if "ignore" in remedy.values else {}
                form = "--{} {}" if self.named else "{}: {}"
                helps = " and ".join(form.format(key, value) for key, value in values.items())
                helps = f", or pass {helps}" if self.named else f", or set {helps} in the job"
                error = error.saying(f"Leave the record out{helps if values else ''}.")
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
