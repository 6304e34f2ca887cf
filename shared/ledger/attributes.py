"""Plain data as DynamoDB writes it, and back.

boto3's own conversion goes through ``Decimal`` and looks at every value a dozen times: on a small function it takes
longer than the round trip that it prepares. Records hold text, whole numbers, truth, nothing, and lists and maps of
these, so this does the same in a few lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable


def encode(value: Any) -> dict[str, Any]:
    """Return ``value`` as an attribute. Raises TypeError for what no record holds: fractions, bytes, sets."""
    kind = cast("type[Any]", type(value))
    writer = _WRITERS.get(kind) or next((write for known, write in _WRITERS.items() if issubclass(kind, known)), None)
    if writer is None:
        raise TypeError(f"{value!r} cannot be kept: records hold text, whole numbers, true, false, null, lists, maps.")
    return writer(value)


def decode(attribute: Mapping[str, Any]) -> Any:
    """Return an attribute's value; what no record holds (bytes, sets) comes as it was written."""
    for kind, value in attribute.items():
        reader = _READERS.get(kind)
        return reader(value) if reader else value
    raise TypeError("An attribute has a type and a value; this one is empty.")


def encode_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item, or a map inside one, as attributes by name. Raises TypeError as ``encode`` does."""
    return {name: encode(value) for name, value in item.items()}


def decode_item(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Turn an item as DynamoDB and its streams write it into plain data."""
    return {name: decode(attribute) for name, attribute in raw.items()}


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # written by others, as 1E+3 or with a fraction
        return int(Decimal(text))


def _list_read(values: list[Any]) -> list[Any]:
    return [decode(value) for value in values]


def _list_written(values: Any) -> dict[str, Any]:
    return {"L": [encode(value) for value in values]}


_WRITERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    str: lambda value: {"S": value},
    bool: lambda value: {"BOOL": value},  # before int, which it is as well
    int: lambda value: {"N": str(int(value))},
    type(None): lambda _: {"NULL": True},
    dict: lambda value: {"M": encode_item(value)},
    list: _list_written,
    tuple: _list_written,
    Mapping: lambda value: {"M": encode_item(value)},
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "S": str,
    "N": _whole,
    "BOOL": bool,
    "NULL": lambda _: None,
    "M": decode_item,
    "L": _list_read,
}
