"""Values: canonical, small ones inline, large ones as blobs that are checked when read."""

from __future__ import annotations

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from shared.errors import PermanentFailure
from shared.testing import MemoryBlobs
from shared.values import INLINE_LIMIT, canonical, digest, load, store

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
