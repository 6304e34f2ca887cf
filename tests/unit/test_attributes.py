"""Records as DynamoDB writes them: the same as boto3's own conversion, and back without loss."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

import pytest
from boto3.dynamodb.types import TypeSerializer

from shared.ledger.attributes import decode, decode_item, encode, encode_item


class Colour(StrEnum):
    RED = "red"


VALUES = ["", "text", 0, -7, 10**37, True, False, None, [], {}, [1, ["a", None]], {"a": {"b": [True, {"c": "d"}]}}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_written_as_boto3_writes_it_and_comes_back(value):
    written = encode(value)
    assert written == TypeSerializer().serialize(value)
    read = decode(written)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("value", "plain"),
    [((1, 2), [1, 2]), (MappingProxyType({"a": 1}), {"a": 1}), (Colour.RED, "red")],
    ids=["tuple", "mapping", "enum"],
)
def test_what_is_like_plain_data_is_kept_as_plain_data(value, plain):
    assert encode(value) == TypeSerializer().serialize(plain)
    assert decode(encode(value)) == plain


@pytest.mark.parametrize("value", [1.5, b"bytes", {1}, {"deep": [0.1]}], ids=repr)
def test_what_no_record_holds_is_refused(value):
    with pytest.raises(TypeError, match="cannot be kept"):
        encode(value)


@pytest.mark.parametrize(("text", "number"), [("1E+3", 1000), ("12.9", 12), ("-0", 0)])
def test_numbers_that_others_wrote_become_whole(text, number):
    assert decode({"N": text}) == number


def test_an_attribute_of_a_kind_that_no_record_holds_is_left_as_it_is():
    assert decode_item({"a": {"SS": ["x"]}, "b": {"S": "y"}}) == {"a": ["x"], "b": "y"}


def test_an_empty_attribute_is_refused():
    with pytest.raises(TypeError, match="empty"):
        decode({})


def test_items_keep_their_names():
    item = {"pk": "p", "n": 1, "m": {"x": None}}
    assert decode_item(encode_item(item)) == item
