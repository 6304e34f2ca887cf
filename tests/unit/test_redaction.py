"""What must never be kept is taken out, and nothing else."""

from __future__ import annotations

import json
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.redaction import MARK, redacted, redacted_text

SECRETS = (
    "AKIAIOSFODNN7EXAMPLE",
    "sk-ant-REDACTED" + "a" * 20,
    "ghp_" + "a" * 36,
    "xoxb-1234567890-abc",
    "xoxb-1234567890",  # the shortest of all: what is shorter is not looked at
    "whsec_" + "A" * 32,
    "AIza" + "b" * 35,
    "sk_live_" + "c" * 24,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\ncut off",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_known_kind_of_secret_is_taken_out_wherever_it_stands(secret):
    value = {"note": f"use {secret}, please", "deep": [{"list": [secret]}], secret: 1}
    told = json.dumps(redacted(value))
    assert json.dumps(secret)[1:-1] not in told
    assert told.count(MARK) == 3


@pytest.mark.parametrize("text", ["INV-2026-0017", "sk-short", "a@b.test", "DE89 3704 0044 0532 0130 00", "eyJ.eyJ.x"])
def test_ordinary_texts_stay(text):
    assert redacted_text(text) == text


def test_marked_fields_are_taken_out_of_objects_lists_and_alternatives():
    person = {"type": "object", "properties": {"name": {"type": "string"}, "ssn": {"type": "string", "x-redact": True}}}
    schema = {
        "type": "object",
        "properties": {
            "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
            "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/person"}]},
            "pin": {"type": "number", "x-redact": True},
        },
        "additionalProperties": {"x-redact": True},
        "$defs": {"person": person},
    }
    given_ = {"people": [{"name": "A", "ssn": "1"}], "either": {"ssn": "2"}, "pin": 4, "other": {"a": 1}}
    assert redacted(given_, schema) == {
        "people": [{"name": "A", "ssn": MARK}],
        "either": {"ssn": MARK},
        "pin": MARK,
        "other": MARK,
    }


def test_a_schema_that_refers_to_itself_is_followed_as_deep_as_the_value_goes():
    node = {"properties": {"secret": {"x-redact": True}}, "anyOf": [{"$ref": "#/$defs/node"}, {"$ref": "#/$defs/node"}]}
    node["properties"]["left"] = node["properties"]["right"] = {"$ref": "#/$defs/node"}
    value = {"secret": "x"}
    for _ in range(100):
        value = {"left": value, "secret": "x"}
    begun = time.process_time()
    told = redacted(value, {"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert time.process_time() - begun < 1.0
    assert '"x"' not in json.dumps(told)


def test_a_large_hostile_text_is_read_once():
    """Twice the text takes twice the time: a ratio, for machines differ."""

    def seconds(size):
        text = "-----BEGIN PRIVATE KEY-----" * size + "eyJ-" * 2 * size + "sk-" * 5 * size
        took = []
        for _ in range(2):
            begun = time.process_time()
            redacted_text(text)
            took.append(time.process_time() - begun)
        return min(took)

    assert seconds(20_000) < 4 * seconds(10_000) + 0.05


@given(
    st.recursive(
        st.none() | st.integers() | st.text(string.ascii_lowercase + " "),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(string.ascii_lowercase), inner),
    )
)
def test_what_holds_no_secret_is_unchanged(value):
    assert redacted(value, {"type": "object"}) == value
