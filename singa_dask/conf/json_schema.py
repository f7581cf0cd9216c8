"""JSON schema of a job file, for editors."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from singa_dask.conf.job import JobConf
from singa_dask.conf.model import Conf
from singa_dask.registry import Registry

__all__ = ["field_docs", "schema"]

NAMED = {
    "layer": ("LayerConf", "type"),
    "updater": ("UpdaterConf", "type"),
    "schedule": ("LRGenConf", "type"),
    "initialiser": ("InitConf", "type"),
    "algorithm": ("AlgConf", "alg"),
    "store": ("StoreConf", "backend"),
}


def schema(registries: Mapping[str, Registry[Any]] | None = None) -> dict[str, Any]:
    """Return the schema of a job file, in the form of JSON schema draft 7.

    Parameters
    ----------
    registries : mapping of str to Registry, optional
        As for `load`: editors then offer the known names. SINGA's names with a k, and those of a user's own
        module, which have a dot, are right, too.
    """
    made = JobConf.model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Documented)
    definitions = made.pop("$defs")
    for kind, (model, key) in NAMED.items():
        if registry := (registries or {}).get(kind):
            names = [*registry.names(), *([""] if kind == "store" else [])]
            definitions[model]["properties"][key]["anyOf"] = [{"enum": names}, {"pattern": r"^k[A-Z]|\."}]
    parts: dict[str, Any] = _plain_references({**made, "definitions": definitions})
    return {"$schema": "http://json-schema.org/draft-07/schema#", **parts, "title": "singa-dask job"}


class _Documented(GenerateJsonSchema):
    """Describes each key by the docstring under its field.

    Pydantic does so too (``use_attribute_docstrings``), but when a model is defined, which makes every start slow.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        for cls in reversed(schema["cls"].__mro__):
            for name, text in field_docs(cls).items() if issubclass(cls, Conf) else ():
                if name in made.get("properties", {}):
                    made["properties"][name]["description"] = text
        return made


def field_docs(cls: type) -> dict[str, str]:
    """Return the docstring under each field that a class itself defines."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, doc in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str):
                found[field.target.id] = inspect.cleandoc(doc.value.value)
    return found


def _plain_references(part: Any) -> Any:
    """Wrap each reference that has keys beside it: draft 7 would not read those."""
    if isinstance(part, list):
        return [_plain_references(item) for item in part]
    if not isinstance(part, dict):
        return part
    inner = {key: _plain_references(value) for key, value in part.items()}
    if isinstance(inner.get("$ref"), str) and len(inner) > 1:
        inner["allOf"] = [{"$ref": inner.pop("$ref")}]
    return inner
