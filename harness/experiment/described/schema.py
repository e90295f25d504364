"""The JSON schema of an experiment file, from its own keys and what backends and workloads take."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from harness.experiment.described.keys import (
    LABEL,
    REQUIRED,
    TOP,
    WORKLOAD_KEYS,
    Schema,
    mapping,
    one_or_more,
)
from harness.experiment.described.loads import LOADS
from harness.experiment.loads import SWEEP

DRAFT = "http://json-schema.org/draft-07/schema#"
"""Which editors' YAML plug-ins understand best."""
TYPES: Mapping[str, str] = {
    "int": "integer",
    "float": "number",
    "str": "string",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}


def experiment_schema(
    backends: Sequence[Mapping[str, Any]], workloads: Mapping[str, Mapping[str, Any]]
) -> Schema:
    """A JSON schema (draft 7) that takes what `parse_experiment` takes, but for what only several
    keys together show.

    Args:
        backends: `name` and `options`; of each option `type`, `default`, `help`, `choices`,
            `words`, `minimum`, `maximum` and `mapping`, as ``decodebench list backends --json``.
        workloads: by name the properties of an entry beside the usual ones, what they default to
            (`max_new_tokens`, `source`), and those that are `required`.
    """
    properties = copy.deepcopy(TOP)
    names = [backend["name"] for backend in backends]
    properties["reference"]["enum"] = names
    properties["backends"] |= _list_of(names, [_backend(one) for one in backends])
    known = [name for name, own in workloads.items() if not own["required"]]
    entries = [_workload(name, own) for name, own in workloads.items()]
    properties["workloads"] |= _list_of(known, entries)
    properties["load"] |= _list_of([SWEEP], [_load(kind) for kind in LOADS])
    return {
        "$schema": DRAFT,
        "title": "decodebench experiment",
        **mapping(properties, *REQUIRED),
    }


def _list_of(names: Sequence[str], entries: Sequence[Schema]) -> Schema:
    bare = [{"enum": list(names)}] if names else []
    return {"type": "array", "minItems": 1, "items": {"anyOf": [*bare, *entries]}}


def _named(
    name: str, properties: Mapping[str, Schema], *required: str, key: str = "name"
) -> Schema:
    return mapping({key: {"const": name}, **properties}, key, *required, title=name)


def _backend(backend: Mapping[str, Any]) -> Schema:
    options = {key: option_schema(option) for key, option in backend["options"].items()}
    return _named(backend["name"], {"label": LABEL, **options})


def option_schema(option: Mapping[str, Any]) -> Schema:
    """What a file may say for an option of a backend: a value, or a list of them."""
    is_list = option["type"] == "list"
    single = _value(option)
    kinds = [{"type": "array", "items": single} if is_list else single]
    if option["words"]:
        kinds.append({"enum": list(option["words"])})
    if option["default"] is None:
        kinds.append({"type": "null"})
    if option.get("mapping"):
        kinds.append({"type": "object"})
    value = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    told = {"description": option["help"], "default": option["default"]}
    if not is_list:
        return {**told, **one_or_more(value)}
    # a list of lists is an axis of the grid; one that holds something else too is a value
    return {**told, "anyOf": [value, {"type": "array", "items": kinds[0], "minItems": 1}]}


def _value(option: Mapping[str, Any]) -> Schema:
    """One value, or one of a list's."""
    bounds = {key: option[key] for key in ("minimum", "maximum") if option[key] is not None}
    if option["choices"]:
        return {"enum": list(option["choices"])}
    if option["type"] == "list":
        return {"type": "number", **bounds} if bounds else {}
    return {"type": TYPES[option["type"]], **bounds}


def _workload(name: str, own: Mapping[str, Any]) -> Schema:
    properties = copy.deepcopy(WORKLOAD_KEYS)
    properties["max_new_tokens"]["default"] = own["max_new_tokens"]
    properties["source"]["default"] = own["source"] or None
    return _named(name, {**properties, **own["properties"]}, *own["required"])


def _load(kind: str) -> Schema:
    text, properties = LOADS[kind]
    required = [key for key, schema in properties.items() if "default" not in schema]
    return {**_named(kind, properties, *required, key="kind"), "description": text}
