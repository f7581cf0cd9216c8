"""The JSON schema of a job file, draft 7."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from singa_dask.conf.base import Conf
from singa_dask.conf.files import layer_blocks
from singa_dask.conf.job import JobConf
from singa_dask.conf.parts import PartConf, options_classes
from singa_dask.registry import Registry


def schema(registries: Mapping[str, Registry[Any]] | None = None) -> dict[str, Any]:
    """Return the JSON schema of a job file.

    Parameters
    ----------
    registries : mapping of str to Registry, optional
        As in `load`. The schema then has the names and the blocks of registered classes. SINGA's names, which begin
        with a k, and names with a dot, of classes in user modules, are also valid.
    """
    known = registries or {}
    whole = schema_of(JobConf)
    definitions = whole.pop("$defs")
    waiting = list(definitions)
    while waiting:
        waiting += _add_blocks(definitions, waiting.pop(), known)
    definitions |= layer_blocks.SCHEMA
    layers = definitions["NetConf"]["properties"]["layer"]
    for place in [each["items"] if "items" in each else each for each in layers.get("anyOf", [layers])]:
        place["anyOf"] = [{"$ref": place.pop("$ref")}, {"$ref": "#/definitions/BlockUse"}]
    whole["properties"]["blocks"] = {
        "type": "object",
        "description": "Lists of layers by name. The net uses one by {name: NAME, block: BLOCK, srclayers: [...]}.",
        "additionalProperties": {"$ref": "#/definitions/Block"},
    }
    whole["patternProperties"] = {"^x-": {"description": "Ignored: for YAML anchors."}}
    parts: dict[str, Any] = _changed({**whole, "definitions": definitions}, known)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **parts, "title": "singa-dask job"}


def schema_of(model: type[Conf]) -> dict[str, Any]:
    """Return the schema of a model without registered blocks. Docstrings of fields are the descriptions."""
    return model.model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Documented)


def _add_blocks(definitions: dict[str, Any], name: str, registries: Mapping[str, Registry[Any]]) -> list[str]:
    """Add the blocks of registered classes to the keys of a part; return the names of new definitions.

    Without a registry, any ``<name>_conf`` is allowed.
    """
    part = definitions[name]
    if registry := registries.get(part.pop("options", "")):
        _add_options(part["properties"], registry)
    kind = part.pop("blocks", "")
    if kind and kind not in registries:
        part["patternProperties"] = {"_conf$": {"type": "object"}}
    if kind not in registries:
        return []
    registry, before = registries[kind], set(definitions)
    for key, options in options_classes(registry).items():
        # a schedule and a layer may have blocks of the same name
        own = options.__name__ if options.__name__ not in before else f"{kind}.{options.__name__}"
        found = schema_of(options)
        definitions |= {inner: each for inner, each in found.pop("$defs", {}).items() if inner not in definitions}
        definitions[own] = found
        readers = [each for each in registry.names() if getattr(registry.get(each), "options_class", None) is options]
        part["properties"][key] = {
            "anyOf": [{"$ref": f"#/definitions/{own}"}, {"type": "null"}],
            "default": None,
            "description": f"For {', '.join(readers)}.",
        }
    return [each for each in definitions if each not in before]


def _add_options(keys: dict[str, Any], registry: Registry[Any]) -> None:
    """Add the options of registered classes to the keys of a part that may hold them."""
    own, takers = set(keys), dict[str, list[str]]()
    for name in registry.names():
        options = getattr(registry.get(name), "options_class", None)
        for key, found in schema_of(options)["properties"].items() if options else ():
            takers.setdefault(key, []).append(name)
            if key not in own:
                keys.setdefault(key, found)
    for key in keys.keys() - own:
        keys[key]["description"] = f"For {', '.join(takers[key])}. {keys[key].get('description', '')}"


class _Documented(GenerateJsonSchema):
    """Adds the docstrings of fields as descriptions, and marks parts with blocks of a registry.

    Pydantic's ``use_attribute_docstrings`` would read docstrings at each import.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        described = super().model_schema(schema)
        for cls in reversed(schema["cls"].__mro__):
            for name, text in field_docs(cls).items() if issubclass(cls, Conf) else ():
                if name in described.get("properties", {}):
                    described["properties"][name]["description"] = text
        if issubclass(schema["cls"], Conf) and schema["cls"].options_of:
            described["options"] = schema["cls"].options_of
        if issubclass(schema["cls"], PartConf):
            described |= {"additionalProperties": False, "blocks": schema["cls"].kind}
        return described


def _changed(part: Any, registries: Mapping[str, Registry[Any]]) -> Any:
    """Add the names of registered classes to keys, and wrap references: draft 7 ignores keys beside them."""
    if isinstance(part, list):
        return [_changed(item, registries) for item in part]
    if not isinstance(part, dict):
        return part
    changed = {key: _changed(inner, registries) for key, inner in part.items()}
    kind = changed.pop("registry") if isinstance(part.get("registry"), str) else ""
    if kind in registries:
        names = [*registries[kind].names(), *([""] if changed.get("default") == "" else [])]
        changed["anyOf"] = [{"enum": names}, {"pattern": r"^k[A-Z]|\."}]
    if isinstance(changed.get("$ref"), str) and len(changed) > 1:
        changed["allOf"] = [{"$ref": changed.pop("$ref")}]
    return changed


@lru_cache(maxsize=256)
def field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields that a class itself defines."""
    [definition] = ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(doc.value.value)
        for field, doc in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }
