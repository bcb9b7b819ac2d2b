"""The JSON Schemas of the file formats, for editors: they say what the loaders do."""

# ruff: noqa: E501 - tables of files, one line each

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import fastjsonschema
import pytest

from promptkit._definitions import INPUT_TYPES
from promptkit._fields import thaw
from promptkit._loading import _execution, _input_specs, _profiles, _prompts, _yaml
from promptkit._loading._shape import Range
from promptkit._types import ROLES
from promptkit.errors import DocumentError


def read_schema(kind: str) -> Any:
    """Return a published schema."""
    return json.loads((resources.files("promptkit") / "schemas" / f"{kind}.schema.json").read_text(encoding="utf-8"))


SCHEMAS = {kind: read_schema(kind) for kind in ("prompt", "profile")}
VALIDATE = {kind: fastjsonschema.compile(schema, detailed_exceptions=True) for kind, schema in SCHEMAS.items()}
LOAD = {"prompt": _prompts.parse_prompt, "profile": _profiles.parse_profile}


def is_valid(kind: str, text: str) -> bool:
    """Return what an editor thinks of a file."""
    try:
        VALIDATE[kind](thaw(_yaml.load(text.encode(), "f").value))
    except fastjsonschema.JsonSchemaException:
        return False
    return True


def is_loaded(kind: str, text: str) -> bool:
    """Return what the loader thinks of a file."""
    try:
        LOAD[kind](text.encode(), "f.yaml", "f")
    except DocumentError:
        return False
    return True


M = "messages: [{role: user, content: hello}]\n"
RIGHT = [
    ("prompt", M),
    ("prompt", M + "description: x\nprofile: a/b\nsession: 's-{{ x }}'\nx-note: {a: [~]}\n"),
    ("prompt", M + "inputs: {}\noutput: {}\nexecution: {}\n"),
    ("prompt", M + "inputs: {a: {type: string, default: '', choices: ['', b], max_chars: 1}}\n"),
    ("prompt", M + "inputs: {größe: {type: file, required: false, max_bytes: 1, max_chars: 1}}\n"),
    ("prompt", M + "inputs: {a: {type: array, default: [~], schema: a.json}, b: {type: object, schema: {}}}\n"),
    ("prompt", M + "inputs: {a: {type: messages, schema: true, description: turns}}\n"),
    (
        "prompt",
        "inputs: {t: {type: messages}, i: {type: image}}\nmessages: [{history: t}, {role: user, images: [i]}, {role: assistant, content: x}]\n",
    ),
    ("prompt", M + "output: {format: json_schema, schema: a/b.json, strict: true, repair: {max_attempts: 0}}\n"),
    ("prompt", M + "output: {format: json_schema, schema: {type: object}}\n"),
    ("prompt", M + "output: {format: json_schema, schema: false}\n"),
    ("prompt", M + "output: {format: json, strict: false, repair: {}}\n"),
    ("prompt", M + "execution: {model: m, temperature: 0, top_p: 1, max_tokens: 1, seed: -1, stop: [], retry: {}}\n"),
    ("prompt", M + "execution: {stop: '', timeout_s: 0.1, presence_penalty: -2, retry: {budget: 0}, extra_body: {a: ~}}\n"),
    ("profile", "backend: a\n"),
    ("profile", "endpoint: http://127.0.0.1:8080/v1\napi_key_env: A_1\n"),
    ("profile", "endpoint: https://host/openai?api-version=1\nmodel: m\nheaders: {X-A: b, X-B: ''}\n"),
    ("profile", "backend: a\nmax_tokens_field: max_completion_tokens\nstructured_output: json_object\nproxy: none\nx-a: 1\n"),
    ("profile", "backend: a\nretry: {budget: 100, base_delay_s: 3600, max_delay_s: 0, max_retry_after_s: 86400}\n"),
]  # fmt: skip
WRONG = [
    ("prompt", "description: x\n"),
    ("prompt", "messages: []\n"),
    ("prompt", "- a\n"),
    ("prompt", M + "promt: x\n"),
    ("prompt", M + "description: ' '\n"),
    ("prompt", M + "profile: ~\n"),
    ("prompt", "messages: [{role: user}]\n"),
    ("prompt", "messages: [{role: usr, content: x}]\n"),
    ("prompt", "messages: [{role: user, content: x, extra: y}]\n"),
    ("prompt", "messages: [{history: t, role: user}]\n"),
    ("prompt", M + "inputs: {a: string}\n"),
    ("prompt", M + "inputs: {a: {}}\n"),
    ("prompt", M + "inputs: {1a: {type: string}}\n"),
    ("prompt", M + "inputs: {a-b: {type: string}}\n"),
    ("prompt", M + "inputs: {a: {type: text}}\n"),
    ("prompt", M + "inputs: {a: {type: string, default: ~}}\n"),
    ("prompt", M + "inputs: {a: {type: string, default: x, required: true}}\n"),
    ("prompt", M + "inputs: {a: {type: file, default: x}}\n"),
    ("prompt", M + "inputs: {a: {type: boolean, choices: [true]}}\n"),
    ("prompt", M + "inputs: {a: {type: string, choices: []}}\n"),
    ("prompt", M + "inputs: {a: {type: string, choices: [a, a]}}\n"),
    ("prompt", M + "inputs: {a: {type: integer, max_chars: 3}}\n"),
    ("prompt", M + "inputs: {a: {type: string, max_chars: 0}}\n"),
    ("prompt", M + "inputs: {a: {type: string, max_bytes: 3}}\n"),
    ("prompt", M + "inputs: {a: {type: image, schema: {}}}\n"),
    ("prompt", M + "output: {format: json_schema}\n"),
    ("prompt", M + "output: {schema: a.json}\n"),
    ("prompt", M + "output: {format: json, schema: a.json}\n"),
    ("prompt", M + "output: {strict: true}\n"),
    ("prompt", M + "output: {strict: no}\n"),
    ("prompt", M + "output: {format: json_schema, schema: ../a.json}\n"),
    ("prompt", M + "output: {format: json_schema, schema: /a.json}\n"),
    ("prompt", M + "output: {format: json_schema, schema: [a]}\n"),
    ("prompt", M + "output: {format: json, repair: {max_attempts: 11}}\n"),
    ("prompt", M + "execution: {endpoint: http://a}\n"),
    ("prompt", M + "execution: {temperature: -1}\n"),
    ("prompt", M + "execution: {max_tokens: 1.5}\n"),
    ("prompt", M + "execution: {stop: 3}\n"),
    ("prompt", M + "execution: {model: 1.10}\n"),
    ("prompt", M + "execution: {retry: {budget: -1}}\n"),
    ("prompt", M + "execution: {x-a: 1}\n"),
    ("profile", "model: m\n"),
    ("profile", "backend: a\napi_key: x\n"),
    ("profile", "backend: a\napi_key_env: sk-x\n"),
    ("profile", "endpoint: localhost:80\n"),
    ("profile", "endpoint: http://u:p@host\n"),
    ("profile", "backend: a\nheaders: {A: 1}\n"),
    ("profile", "backend: a\nproxy: http://p\n"),
    ("profile", "backend: a\nmax_tokens_field: x\n"),
    ("profile", "backend: a\ntimeout_s: 0\n"),
    ("profile", "backend: a\ntop_p: 1.1\n"),
]


@pytest.mark.parametrize(("kind", "text"), RIGHT)
def test_a_right_file_is_right_to_both(kind: str, text: str) -> None:
    """An editor must not mark what loads."""
    assert is_loaded(kind, text)
    assert is_valid(kind, text)


@pytest.mark.parametrize(("kind", "text"), WRONG)
def test_a_wrong_file_is_wrong_to_both(kind: str, text: str) -> None:
    """An editor marks what a schema can express of the loader's rules."""
    assert not is_loaded(kind, text)
    assert not is_valid(kind, text)


def test_the_schemas_know_the_keys_that_the_loaders_know() -> None:
    """A new key must find its way into both."""
    prompt, profile = SCHEMAS["prompt"]["properties"], SCHEMAS["profile"]["properties"]
    declared = prompt["inputs"]["additionalProperties"]["properties"]
    history, message = prompt["messages"]["items"]["oneOf"]
    assert set(prompt) == set(_prompts.PROMPT_KEYS)
    assert set(profile) == set(_profiles.PROFILE_KEYS)
    assert set(declared) == set(_input_specs.INPUT_KEYS)
    assert declared["type"]["enum"] == list(INPUT_TYPES)
    assert set(message["properties"]) == set(_prompts.MESSAGE_KEYS)
    assert message["properties"]["role"]["enum"] == list(ROLES)
    assert set(history["properties"]) == {"history"}
    assert set(prompt["output"]["properties"]) == set(_prompts.OUTPUT_KEYS)
    assert prompt["output"]["properties"]["format"]["enum"] == list(_prompts.OUTPUT_FORMATS)
    assert set(prompt["execution"]["properties"]) == set(_execution.COMMON_KEYS)


def test_the_schemas_know_the_ranges_that_the_loaders_know() -> None:
    """Bounds are the same numbers."""

    def bounds(range_: Range) -> dict[str, Any]:
        found = {
            "type": "integer" if range_.is_integer else "number",
            "minimum": range_.at_least,
            "maximum": range_.at_most,
            "exclusiveMinimum": range_.above,
        }
        return {name: value for name, value in found.items() if value is not None}

    def without_description(schema: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in schema.items() if name != "description"}

    for known in (SCHEMAS["prompt"]["properties"]["execution"]["properties"], SCHEMAS["profile"]["properties"]):
        for name, range_ in _execution.NUMBERS.items():
            assert without_description(known[name]) == bounds(range_)
        for name, range_ in _execution.RETRY_NUMBERS.items():
            assert without_description(known["retry"]["properties"][name]) == bounds(range_)
    repair = SCHEMAS["prompt"]["properties"]["output"]["properties"]["repair"]["properties"]
    assert without_description(repair["max_attempts"]) == bounds(_prompts.REPAIR_ATTEMPTS)


@pytest.mark.parametrize("kind", ["prompt", "profile"])
def test_every_key_is_described(kind: str) -> None:
    """Editors show the description beside the key."""
    for name, schema in SCHEMAS[kind]["properties"].items():
        assert schema.get("description"), name
