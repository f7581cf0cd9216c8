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
from singa_dask.conf.part import PartConf, blocks_of
from singa_dask.registry import Registry

__all__ = ["field_docs", "schema", "schema_of"]


def schema(registries: Mapping[str, Registry[Any]] | None = None) -> dict[str, Any]:
    """Return the schema of a job file, in the form of JSON schema draft 7.

    Parameters
    ----------
    registries : mapping of str to Registry, optional
        As for `load`: editors then offer the known names, and know the blocks of registered classes. SINGA's names with
        a k, and those of a user's own module, which have a dot, are right, too.
    """
    given = registries or {}
    made = schema_of(JobConf)
    definitions = made.pop("$defs")
    waiting = list(definitions)
    while waiting:
        waiting += _add_blocks(definitions, waiting.pop(), given)
    parts: dict[str, Any] = _plain_references(_named({**made, "definitions": definitions}, given))
    return {"$schema": "http://json-schema.org/draft-07/schema#", **parts, "title": "singa-dask job"}


def schema_of(model: type[Conf]) -> dict[str, Any]:
    """Return the schema of one model, with docstrings of fields as descriptions, and without registered blocks."""
    return model.model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Documented)


def _add_blocks(definitions: dict[str, Any], name: str, registries: Mapping[str, Registry[Any]]) -> list[str]:
    """Add the blocks that registered classes declare to the keys of a part.

    Where no registry tells them, any ``<name>_conf`` may be one. Returns the names of definitions that are new.
    """
    part = definitions[name]
    kind = part.pop("blocks", "")
    if kind and kind not in registries:
        part["patternProperties"] = {"_conf$": {"type": "object"}}
    if kind not in registries:
        return []
    registry, before = registries[kind], set(definitions)
    for key, block in blocks_of(registry).items():
        # schedules and layers may have blocks of one name
        own = block.__name__ if block.__name__ not in before else f"{kind}.{block.__name__}"
        found = schema_of(block)
        definitions |= {inner: each for inner, each in found.pop("$defs", {}).items() if inner not in definitions}
        definitions[own] = found
        readers = [each for each in registry.names() if getattr(registry.get(each), "block", None) is block]
        part["properties"][key] = {
            "anyOf": [{"$ref": f"#/definitions/{own}"}, {"type": "null"}],
            "default": None,
            "description": f"For {', '.join(readers)}.",
        }
    return [each for each in definitions if each not in before]


class _Documented(GenerateJsonSchema):
    """Describes each key by the docstring under its field, and marks the parts that have blocks of a registry.

    Pydantic describes keys so too (``use_attribute_docstrings``), but when a model is defined, which makes every start
    slow.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        for cls in reversed(schema["cls"].__mro__):
            for name, text in field_docs(cls).items() if issubclass(cls, Conf) else ():
                if name in made.get("properties", {}):
                    made["properties"][name]["description"] = text
        if issubclass(schema["cls"], PartConf):
            made |= {"additionalProperties": False, "blocks": schema["cls"].kind}
        return made


def _named(part: Any, registries: Mapping[str, Registry[Any]]) -> Any:
    """List the names of a registry where a key takes one."""
    if isinstance(part, list):
        return [_named(item, registries) for item in part]
    if not isinstance(part, dict):
        return part
    made = {key: _named(inner, registries) for key, inner in part.items()}
    kind = made.pop("registry") if isinstance(part.get("registry"), str) else ""
    if kind in registries:
        names = [*registries[kind].names(), *([""] if made.get("default") == "" else [])]
        made["anyOf"] = [{"enum": names}, {"pattern": r"^k[A-Z]|\."}]
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
