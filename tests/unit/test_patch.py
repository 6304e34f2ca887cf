"""JSON Merge Patch: the examples of RFC 7396, and that a difference is the patch that makes it."""

from __future__ import annotations

import pytest

from shared.patch import difference, merge, same

EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
"""RFC 7396, appendix A."""


@pytest.mark.parametrize(("target", "patch", "merged"), EXAMPLES)
def test_the_examples_of_the_rfc(target, patch, merged):
    before = repr(target)
    assert merge(target, patch) == merged
    assert repr(target) == before, "what is patched stays as it was"


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4}}, {"b": {"c": 4, "d": None}}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, {}),
        ({"a": 1}, {"a": 1.0}, {}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": "x"}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_a_difference_makes_one_into_the_other(before, after, patch):
    assert difference(before, after) == patch
    assert same(merge(before, patch), after)
