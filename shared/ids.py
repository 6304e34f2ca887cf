"""Identifiers: ULIDs for runs, digests for content."""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
import secrets

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def ulid(now: int) -> str:
    """Return a new ULID (26 characters of Crockford base 32, by the ULID specification); ``now`` in milliseconds."""
    return ulid_from(now, secrets.token_bytes(10))


def ulid_from(now: int, tail: bytes) -> str:
    """Return the ULID of ``now`` (ms) with the ten bytes of ``tail`` for its random part."""
    number = (now << 80) | int.from_bytes(tail, "big")
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def ulid_time(text: str) -> int:
    """Return the time (ms) that a ULID was made of: its first ten characters."""
    return functools.reduce(lambda number, sign: number * 32 + _ALPHABET.index(sign), text[:10], 0)


def is_ulid(text: str) -> bool:
    """Tell whether ``text`` has the form of a ULID."""
    return _ULID.fullmatch(text) is not None


def sha256(data: bytes) -> str:
    """Return the SHA-256 of ``data`` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def key_digest(key: str) -> str:
    """Return what is kept of an idempotency key that a caller has chosen: it may be anything."""
    return sha256(key.encode())[:16]


def mac(key: bytes, data: bytes) -> bytes:
    """Return the HMAC-SHA-256 of ``data``, 32 bytes."""
    return hmac.new(key, data, hashlib.sha256).digest()
