"""Values: canonical, small ones inline, large ones as blobs that are checked when read."""

from __future__ import annotations

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from shared.errors import PermanentFailure
from shared.testing import MemoryBlobs
from shared.values import DEEPEST, INLINE_LIMIT, canonical, digest, load, store

SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | SAFE | st.text(max_size=20) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_what_is_stored_is_read_back(value):
    blobs = MemoryBlobs()
    assert load(store(value, blobs, "t"), blobs) == value


@given(JSON)
@example({"z": {"b": [1, '\x00\x1f\x7f"\\\n/'], "a": ()}, "A": [True, None, -(2**53) + 1]})
def test_plain_values_are_written_as_rfc_8785_has_it(value):
    assert canonical(value) == rfc8785.dumps(value)


def test_the_digest_does_not_depend_on_the_order_of_names():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


def test_a_large_value_is_a_blob_under_its_tenant_and_is_checked():
    blobs = MemoryBlobs()
    value = store("x" * INLINE_LIMIT, blobs, "acme")
    assert value.blob == f"TENANT/acme/blobs/{value.digest}"
    assert load(value, blobs) == "x" * INLINE_LIMIT
    blobs.objects[value.blob] = b'"other"'
    with pytest.raises(PermanentFailure, match="digest"):
        load(value, blobs)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**60, {1, 2}, object()])
def test_what_is_not_json_everywhere_is_refused(value):
    with pytest.raises(PermanentFailure, match="JSON"):
        digest(value)


def nested(levels, leaf, listed):
    value = leaf
    for level in range(levels):
        value = [value] if listed or level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("leaf", [1, 0.5, "é", {}])
@pytest.mark.parametrize("listed", [True, False])
def test_how_deep_a_value_may_be_does_not_depend_on_who_asks(leaf, listed):
    most = DEEPEST - (leaf == {})

    def asked(levels, below=0):
        return canonical(nested(levels, leaf, listed)) if below == 0 else asked(levels, below - 1)

    for below in (0, 200):
        assert asked(most, below)
        for levels in (most + 1, 400, 900):
            with pytest.raises(PermanentFailure, match=f"nested too deeply: more than {DEEPEST}"):
                asked(levels, below)


def test_many_brackets_beside_each_other_are_not_deep():
    assert canonical([[{}] * 1000] * 3)
    assert canonical("[" * 1000)
