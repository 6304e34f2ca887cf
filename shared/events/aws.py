"""The event bus on EventBridge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from shared.errors import TransientFailure
from shared.ports import Events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.ports import Announcement

SOURCE = "signalbox"
_MOST = 10
"""Entries of one request. Source: EventBridge API reference, PutEvents."""


class EventBridge(Events):
    """One custom bus. ``client`` is a boto3 EventBridge client, ``bus`` its name."""

    def __init__(self, client: Any, bus: str) -> None:
        self._client = client
        self._bus = bus

    def announce(self, announcements: Sequence[Announcement]) -> None:
        """Publish all of them. Raises TransientFailure when one is not taken."""
        entries = [self._entry(each) for each in announcements]
        for start in range(0, len(entries), _MOST):
            self._put(entries[start : start + _MOST])

    def _put(self, entries: list[dict[str, Any]]) -> None:
        try:
            answer = cast("dict[str, Any]", self._client.put_events(Entries=entries))
        except (ClientError, BotoCoreError) as error:
            raise TransientFailure(f"The event bus {self._bus} takes nothing: {error}") from error
        if answer.get("FailedEntryCount"):
            codes = sorted({str(each["ErrorCode"]) for each in answer["Entries"] if each.get("ErrorCode")})
            raise TransientFailure(f"The event bus {self._bus} did not take everything: {', '.join(codes)}")

    def _entry(self, one: Announcement) -> dict[str, Any]:
        return {
            "EventBusName": self._bus,
            "Source": SOURCE,
            "DetailType": one.kind,
            "Resources": [one.resource],
            "Detail": json.dumps(one.detail),
        }
