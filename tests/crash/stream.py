"""What the table's stream lets through, and what of it is announced to the function that writes letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.events.rules import announcement

if TYPE_CHECKING:
    from shared.ports import Key


def wanted(item: dict[str, Any]) -> bool:
    """Tell whether the filters of the stream's mapping let a record through."""
    decided = item["sk"].startswith("GATE#") and item["status"] in {"approved", "rejected"}
    return item["sk"] == "HEAD" or decided or (item["sk"].startswith("PARK#") and bool(item.get("answer")))


def asks_again(key: Key, item: dict[str, Any]) -> bool:
    """Tell whether a record leads to an announcement that the function hears of which writes letters."""
    told = announcement({**item, "pk": key.pk, "sk": key.sk})
    return told is not None and bool(told.detail.get("again"))
