"""Approving with changes: what of a gate's arguments a person may change, and what the changes make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared import values
from shared.errors import PermanentFailure, UnfitChanges
from shared.patch import merge
from shared.redaction import redacted
from shared.runtime.outputs import fits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Gate
    from shared.ports import Blobs
    from shared.values import Value

LARGEST_CHANGES = 64 * 1024
"""Most bytes of the changes of one edit: they stand in the log as they are."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes that fit. They were made to the arguments of digest ``of``, and ``arguments`` is what they come to."""

    of: str
    changes: Mapping[str, Any]
    arguments: Value
    stored: Value


def edit(gate: Gate, changes: Mapping[str, Any], blobs: Blobs, tenant: str) -> Edit:
    """Merge changes into what a gate's decision is about, and keep the result. Raises UnfitChanges."""
    made = dict(changes)
    try:
        size = len(values.canonical(made))
        if size > LARGEST_CHANGES:
            raise UnfitChanges(f"The changes have {size:,} bytes; {LARGEST_CHANGES:,} fit.")
        after = merge(values.load(gate.arguments, blobs), made)
        check(values.load(gate.edit, blobs), made, after)
        return Edit(gate.digest, made, values.store(after, blobs, tenant), values.store(made, blobs, tenant))
    except (PermanentFailure, RecursionError) as error:
        raise UnfitChanges(f"The changes cannot be kept: {error}") from error


def check(schema: Mapping[str, Any] | None, changes: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse changes to what may not be changed, and those by which an argument does not fit ``schema`` any more.

    What is compared is each changed argument as it is ``after`` them; one that is removed counts as null. Raises
    UnfitChanges.
    """
    if schema is None:
        raise UnfitChanges("This is approved or rejected as it is: its workflow lets nobody change it.")
    for name in changes:
        if name not in schema["properties"]:
            raise UnfitChanges(f"It may not be changed. What may: {', '.join(schema['properties'])}.", name)
        # Taken out of what is kept, it would be gone for the call too: what runs would not be what was meant.
        if redacted(changes[name]) != changes[name]:
            raise UnfitChanges("It looks like a secret, and secrets are never kept.", name)
    became = {name: after.get(name) for name in changes}
    for name, value in became.items():
        wrong = fits(value, {"allOf": [schema["properties"][name]], "$defs": schema.get("$defs", {})})
        if wrong:
            raise UnfitChanges(wrong.removeprefix("$").removeprefix(": "), name)
    wrong = fits(became, schema)
    if wrong:
        raise UnfitChanges(wrong)
