"""Type stubs of `singa_dask.nn`, for editors and type checkers."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from singa_dask.conf.describe import docs_of, parts_of
from singa_dask.conf.json_schema import schema_of
from singa_dask.conf.kinds import PYTHON_NAME
from singa_dask.conf.layer import LayerConf
from singa_dask.registry import Registry

STUB = """# Written by: singa-dask schema --stub
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict, Unpack

class Common(TypedDict, total=False):
"""
PYTHON_TYPES = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "null": "None"}
ANY_BLOCK = "Mapping[str, Any]"


def stub(layers: Registry[Any]) -> str:
    """Return the text of a stub with a function for each type of layer that takes its keys."""
    common = {key: part for key, part in schema_of(LayerConf)["properties"].items() if key != "type"}
    lines = []
    for key, part in common.items():
        lines += [f"    {key}: {python_type(part)}", *_documented([part["description"]])]
    for each in parts_of(layers):
        lines += ["", *_function(each.name, each.cls)]
        lines += [f"{other} = {each.name}" for other in each.others]
    return STUB + "\n".join(lines) + "\n"


def _function(name: str, cls: Any) -> Iterator[str]:
    """Yield the lines of the function of a type; its required keys are the first parameters."""
    own = schema_of(cls.options_class) if cls.options_class else {"properties": {}}
    keys = {key: part for key, part in own["properties"].items() if key not in LayerConf.model_fields}
    required = [key for key in own.get("required", ()) if key in keys]
    options = [f"{key}: {python_type(part)} = ..." for key, part in keys.items() if key not in required]
    # a layer also reads the blocks of its base classes
    blocks = dict.fromkeys(vars(each)["options_class"] for each in cls.__mro__ if vars(each).get("options_class"))
    options += [f"{each.block_key}: {ANY_BLOCK} = ..." for each in blocks]
    yield f"def {name}("
    for argument in (*(f"{key}: {python_type(keys[key])}" for key in required), *(["*", *options] if options else ())):
        yield f"    {argument},"
    yield "    **rest: Any," if cls.options_class and cls.options_class.rest else "    **common: Unpack[Common],"
    yield ") -> dict[str, Any]:"
    described = (f"{key}: {part['description']}" for key, part in keys.items() if "description" in part)
    yield from _documented([docs_of(cls)[0][1], *described])


def _documented(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a docstring of some paragraphs."""
    paragraphs = ["\n    ".join(textwrap.wrap(text, 110)) for text in texts]
    yield '    r"""' + "\n\n    ".join(paragraphs) + '"""'


def python_type(part: Mapping[str, Any]) -> str:
    """Return the Python type of a JSON schema."""
    if "enum" in part or "const" in part:
        return f"Literal[{', '.join(json.dumps(each) for each in part.get('enum', [part.get('const')]))}]"
    if "anyOf" in part or "allOf" in part:
        return " | ".join(dict.fromkeys(python_type(each) for each in part.get("anyOf", part.get("allOf"))))
    if part.get("type") == "array":
        return f"Sequence[{python_type(part.get('items', {}))}]"
    if part.get("format") == PYTHON_NAME:
        return "str | Callable[..., Any]"
    is_block = "$ref" in part or part.get("type") == "object"
    return ANY_BLOCK if is_block else PYTHON_TYPES.get(part.get("type", ""), "Any")
