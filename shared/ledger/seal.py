"""Attestations: every step's output is sealed when it is written, and checked whenever it is read.

The seal is an HMAC over the run, the path, the attempt, what made the output and the output itself, by a key that only
our functions have. Whoever writes an output into the table past them is found out by the next step that reads it: the
record is then *forged*, and that step pauses the run (``attestation_mismatch``).

The key's id stands in the seal. Several keys may be valid: the newest signs, and an older one is kept until the last
run has ended that was sealed by it.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from shared.errors import PermanentFailure
from shared.ports import Item, Key, Store, Write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

_SIGNED = ("attempt", "epoch", "by", "route")
"""Fields that are signed as they are, besides run, path, and the digests of arguments and output."""


@dataclass(frozen=True, slots=True)
class Seal:
    """The keys by their ids; ``current`` is the one that signs."""

    keys: Mapping[str, bytes]
    current: str

    @classmethod
    def of(cls, secret: str) -> Seal:
        """Read a secret: one random text, or ``{"current": ID, "keys": {ID: TEXT}}`` while keys are being changed.

        Raises PermanentFailure for anything else.
        """
        if not secret.startswith("{"):
            name = sha256(secret.encode()).hexdigest()[:8]
            return cls({name: secret.encode()}, name)
        try:
            given = json.loads(secret)
            keys = {str(name): str(text).encode() for name, text in given["keys"].items()}
            current = cast("str", given["current"])
            return cls({current: keys[current], **keys}, current)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            wanted = '{"current": "k2", "keys": {"k1": "...", "k2": "..."}}'
            raise PermanentFailure(f"The secret with the keys of attestations is not {wanted}.") from error

    def sealed(self, pk: str, item: Item) -> Item:
        """Return a record as it is to be written: a step with an output with its seal, unless it was forged."""
        if not item.get("output") or item.get("forged"):
            return item
        return {**item, "seal": f"{self.current}.{self._mac(self.current, pk, item)}"}

    def checked(self, pk: str, item: Item) -> Item:
        """Return a record as it was read, marked as forged when its output does not carry a valid seal."""
        if item.get("output") is None or self._is_valid(pk, item):
            return item
        return {**item, "output": _NOTHING if not _is_value(item["output"]) else item["output"], "forged": True}

    def _is_valid(self, pk: str, item: Item) -> bool:
        if not _is_value(item["output"]):
            return False
        name, _, mac = str(item.get("seal", "")).partition(".")
        text = item["output"].get("text")
        whole = text is None or sha256(text.encode()).hexdigest() == item["output"]["digest"]
        return whole and name in self.keys and hmac.compare_digest(mac, self._mac(name, pk, item))

    def _mac(self, name: str, pk: str, item: Item) -> str:
        arguments, output = item.get("arguments"), item["output"]
        given = [pk, item["path"], *(item.get(field) for field in _SIGNED)]
        message = json.dumps([*given, _part(arguments, "digest"), _part(output, "digest"), _part(output, "blob")])
        return hmac.digest(self.keys[name], message.encode(), "sha256").hex()


_NOTHING: dict[str, Any] = {"digest": "", "size": 0}
"""What stands for an output that is not even one."""


def _part(value: Any, name: str) -> Any:
    """Return a part of a stored value, as a record holds it or as plain data."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _is_value(output: Any) -> bool:
    """Tell whether an output has the form that this product writes, valid or not."""
    given = cast("dict[str, Any]", output) if isinstance(output, dict) else {}
    texts = (given.get("text"), given.get("blob"))
    known = given.keys() <= {"digest", "size", "text", "blob"}
    return known and isinstance(given.get("digest"), str) and all(isinstance(one, str | None) for one in texts)


class SealedStore(Store):
    """``store`` with every step's output sealed on its way in and checked on its way out."""

    def __init__(self, store: Store, seal: Seal) -> None:
        self._store, self._seal = store, seal

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the items that exist, read consistently."""
        return {key: self._checked(key, item) for key, item in self._store.read(keys).items()}

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Item]:
        """Return the partition's items under ``prefix`` above ``after``, in order."""
        found = self._store.query(pk, prefix, after=after, limit=limit)
        return [self._checked(Key(pk, item["sk"]), item) for item in found]

    def index(self, name: str, value: str, *, limit: int, before: str = "") -> list[Item]:
        """Return an index's newest items for ``value``; no step is in one."""
        return self._store.index(name, value, limit=limit, before=before)

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none. Raises StoreConflict when a condition does not hold."""
        self._store.commit([self._sealed(write) for write in writes])

    def alone(self) -> AbstractContextManager[None]:
        """Let nobody else write meanwhile, where the store can do that."""
        return self._store.alone()

    def _checked(self, key: Key, item: Item) -> Item:
        return self._seal.checked(key.pk, item) if key.sk.startswith("STEP#") else item

    def _sealed(self, write: Write) -> Write:
        if not write.key.sk.startswith("STEP#"):
            return write
        return write._replace(item=self._seal.sealed(write.key.pk, write.item))
