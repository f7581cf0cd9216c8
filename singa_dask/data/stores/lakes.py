"""Refuse directories of Delta, Hudi and Iceberg tables: only a table's log lists its valid files."""

from __future__ import annotations

import posixpath
from collections.abc import Collection

from singa_dask import fs
from singa_dask.errors import DataError

LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}


def refuse_lake(url: str, names: Collection[str], storage_options: fs.Options = None) -> None:
    """Raise a `DataError` for a Delta, Hudi or Iceberg table, or for uncommitted files of Databricks.

    ``names`` are the names in the directory.
    """
    kind = next((kind for log, kind in LOGS.items() if log in names), "")
    if not kind and ("metadata" in names or posixpath.basename(url.rstrip("/")) == "data"):
        log = fs.join(url if "metadata" in names else posixpath.dirname(url.rstrip("/")), "metadata")
        log_files = fs.ls(log, storage_options) if fs.is_dir(log, storage_options) else []
        kind = "Iceberg" if any(name.endswith(".metadata.json") for name in log_files) else ""
    if kind:
        raise DataError(
            f"{url}: this is a table of {kind}. The directory also has replaced and deleted files, and only the log "
            f"of the table lists the valid ones. Export the table to a directory of Parquet files, with Spark or a "
            f"reader of that format."
        )
    begun = {name.removeprefix("_started_") for name in names if name.startswith("_started_")}
    if open_ones := sorted(begun - {name.removeprefix("_committed_") for name in names}):
        raise DataError(
            f"{url}: _started_{open_ones[0]} has no _committed_{open_ones[0]}. The job that writes there is running "
            f"or has failed, and some files are not valid."
        )
