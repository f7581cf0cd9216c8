"""The schema of records: dtype and shape of each field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError


def schema_of(arrays: Arrays) -> dict[str, Field]:
    """Return the schema of arrays: dtype and shape of each field of one record."""
    return {name: Field(array.dtype, array.shape[1:]) for name, array in arrays.items()}


def describe_fields(schema: Mapping[str, Field]) -> dict[str, Any]:
    """Return a schema as a dict for JSON."""
    return {name: {"dtype": field.dtype.str, "shape": field.shape} for name, field in schema.items()}


def fields_of(described: Mapping[str, Any]) -> dict[str, Field]:
    """Return the schema that a result of `describe_fields` describes."""
    return {name: Field(np.dtype(each["dtype"]), tuple(each["shape"])) for name, each in described.items()}


def show_schema(schema: Mapping[str, Field]) -> str:
    """Format a schema for a message: ``pixel (28, 28) uint8, label () int32``."""
    return ", ".join(f"{name} {field.shape} {field.dtype}" for name, field in schema.items())


def check_schema(arrays: Arrays, schema: dict[str, Field], where: str) -> Arrays:
    """Return ``arrays`` unchanged; raise a `DataError` if their schema differs from the store's."""
    if schema_of(arrays) != schema:
        raise DataError(f"{where}: holds {show_schema(schema_of(arrays))}, expected {show_schema(schema)}.")
    return arrays
