"""JSON values as they are stored: canonical text inline when small, a content-addressed blob when large."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import rfc8785

from shared.errors import PermanentFailure, TooLarge
from shared.frozen import frozen
from shared.ids import sha256

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.ports import Blobs

INLINE_LIMIT = 8 * 1024
"""Values above this many bytes of canonical JSON go to the blob store (8 KB)."""
LARGEST = 32 * 1024 * 1024
"""Most bytes of canonical JSON that one value may have: a function holds it in memory several times over."""
DEEPEST = 128
"""Most objects and lists inside each other that a value may have: whoever reads it has stack for so many."""
_SAFE = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly. Source: RFC 8259, section 6."""


@frozen
class Value:
    """A stored JSON value: its SHA-256, its size in bytes, and either its text or the key of its blob."""

    digest: str
    size: int
    text: str | None = None
    blob: str | None = None


def canonical(value: Any) -> bytes:
    """Return RFC 8785 canonical JSON.

    Raises PermanentFailure when ``value`` is not JSON (NaN, integers beyond 2^53, half characters, foreign types), or
    is nested more than ``DEEPEST`` levels deep.
    """
    try:
        data = _encode(value).encode() if _is_plain(value) else rfc8785.dumps(value)
    except ValueError as error:
        raise PermanentFailure(f"The value is not JSON that every reader understands: {error}") from error
    except RecursionError as error:
        raise PermanentFailure(_TOO_DEEP) from error
    if data.count(b"{") + data.count(b"[") > DEEPEST and _is_too_deep(value):
        raise PermanentFailure(_TOO_DEEP)
    return data


_TOO_DEEP = f"The value is nested too deeply: more than {DEEPEST} objects and lists inside each other."


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, (dict, list, tuple))]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    return cast("dict[str, Any]", value).values() if isinstance(value, dict) else value


def _is_plain(value: Any) -> bool:
    """Tell whether every JSON encoder that sorts keys writes the value as RFC 8785 does: no doubles, only ASCII."""
    kind = value.__class__
    if kind is str:
        return value.isascii()
    if kind is int:
        return -_SAFE <= value <= _SAFE
    if kind is dict:
        return all(type(key) is str and key.isascii() and _is_plain(inner) for key, inner in value.items())
    return all(map(_is_plain, value)) if kind is list else value is None or kind is bool


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of ``value``, in hexadecimal."""
    return sha256(canonical(value))


def store(value: Any, blobs: Blobs, tenant: str) -> Value:
    """Store ``value`` and return how to find it again. Large values go to ``blobs`` under the tenant's prefix.

    Raises PermanentFailure when it is not JSON, TooLarge when it is more than can be kept.
    """
    data = canonical(value)
    if len(data) > LARGEST:
        raise TooLarge(f"{_heaviest(value, len(data))} At most {LARGEST:,} are kept. Pass large data by reference.")
    mark = sha256(data)
    if len(data) <= INLINE_LIMIT:
        return Value(digest=mark, size=len(data), text=data.decode())
    return Value(digest=mark, size=len(data), blob=blobs.put(tenant, mark, data))


def _heaviest(value: Any, size: int) -> str:
    """Say how large a value is, and which field of it makes it so."""
    path = "$"
    inner: Any = value
    while isinstance(inner, dict) and inner:
        sizes = {name: len(canonical(field)) for name, field in cast("dict[str, Any]", inner).items()}
        name = max(sizes, key=sizes.__getitem__)
        if sizes[name] * 2 < size:
            break
        path, inner = f"{path}.{name}", cast("dict[str, Any]", inner)[name]
    where = f", most of them in `{path}`" if path != "$" else ""
    return f"The value has {size:,} bytes{where}."


def load(value: Value | None, blobs: Blobs) -> Any:
    """Return the JSON value behind ``value``; None for None. Raises PermanentFailure when a blob was tampered with."""
    if value is None:
        return None
    if value.text is not None:
        return parse(value.text)
    data = blobs.get(value.blob or "")
    if sha256(data) != value.digest:
        raise PermanentFailure(f"The stored value {value.blob} does not have its recorded digest. Restore the object.")
    return parse(data)


def parse(data: str | bytes) -> Any:
    """Return the JSON value of canonical text, which writes large doubles without exponent: they stay doubles."""
    return _decode(data if isinstance(data, str) else data.decode())


def _whole(digits: str) -> int | float:
    number = int(digits)
    return number if -_SAFE <= number <= _SAFE else float(digits)


_decode = json.JSONDecoder(parse_int=_whole).decode
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode
"""Does in a quarter of the time what rfc8785 does with plain values."""
