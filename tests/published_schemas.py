"""The schemas of documents as validators, each made once: checking a schema takes longer than validating most
documents."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
from pydantic import BaseModel

SCHEMAS = Path(__file__).parents[1] / "schemas"


@cache
def validator(name: str) -> jsonschema.Draft7Validator:
    """The validator of schemas/<name>.schema.json."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


@cache
def validator_of(model: type[BaseModel]) -> jsonschema.Draft202012Validator:
    """The validator of a document without a published schema, as its model writes it."""
    return jsonschema.Draft202012Validator(model.model_json_schema(by_alias=True, mode="serialization"))
