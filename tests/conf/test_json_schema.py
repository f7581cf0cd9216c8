"""The JSON schema that editors use."""

from __future__ import annotations

import json
from typing import Any

from singa_dask import conf


def references(part: Any) -> list[dict[str, Any]]:
    if isinstance(part, list):
        return [found for item in part for found in references(item)]
    if not isinstance(part, dict):
        return []
    own = [part] if isinstance(part.get("$ref"), str) else []
    return own + [found for value in part.values() for found in references(value)]


def test_it_is_draft_seven() -> None:
    made = json.loads(json.dumps(conf.schema()))
    assert made["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert "$defs" not in json.dumps(made)
    for reference in references(made):
        assert list(reference) == ["$ref"]
        assert reference["$ref"].removeprefix("#/definitions/") in made["definitions"]


def test_it_knows_required_and_unknown_keys_and_descriptions() -> None:
    made = conf.schema()
    assert set(made["required"]) == {"neuralnet"}
    layer = made["definitions"]["LayerConf"]
    assert layer["additionalProperties"] is False
    assert layer["properties"]["srclayers"]["description"].startswith("Layers that this layer reads")
    assert layer["properties"]["srclayers"]["anyOf"][0] == {"type": "string"}


def test_names_are_listed_where_registries_are_given(registries: Any) -> None:
    definitions = conf.schema(registries)["definitions"]
    names = definitions["LayerConf"]["properties"]["type"]["anyOf"]
    assert names == [{"enum": registries["layer"].names()}, {"pattern": r"^k[A-Z]|\."}]
    assert "" in definitions["StoreConf"]["properties"]["backend"]["anyOf"][0]["enum"]
    assert "anyOf" not in conf.schema()["definitions"]["LayerConf"]["properties"]["type"]
