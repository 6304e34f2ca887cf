"""Signed requests: Standard Webhooks, verified by its own library. Every no sounds the same."""

from __future__ import annotations

import base64
import logging
import re
from typing import TYPE_CHECKING

from standardwebhooks import Webhook, WebhookVerificationError

from shared.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG = logging.getLogger("signalbox")
_ID = re.compile(r"[\x21-\x7e]{1,200}", re.ASCII)
SHORTEST = 24
"""Bytes of a secret. Source: Standard Webhooks specification, "Signature scheme"."""
_SPLIT = re.compile(r"[\s,]+")


class Unverified(RequestRefused):
    """No such webhook, or no valid signature: which of them is not told."""

    status = 401
    code = "unverified"

    def __init__(self) -> None:
        super().__init__(
            "There is no such webhook, or the request is not signed for it: webhook-id, webhook-timestamp (at most "
            "five minutes away) and webhook-signature as Standard Webhooks says."
        )


def check_form(headers: Mapping[str, str]) -> str:
    """Return the webhook's id, before anybody asks for secrets. Raises Unverified when a header cannot be right."""
    id_ = headers.get("webhook-id", "")
    if _ID.fullmatch(id_) is None or not headers.get("webhook-timestamp") or not headers.get("webhook-signature"):
        raise Unverified
    return id_


def verify(body: bytes, headers: Mapping[str, str], secrets: str) -> None:
    """Verify a request with any of the ``secrets``, which blanks or commas separate: old and new while one is rotated.

    Signatures are compared in constant time; the timestamp may be five minutes away. Raises Unverified.
    """
    if not any(_fits(body, headers, secret) for secret in _SPLIT.split(secrets.strip())):
        raise Unverified


def _fits(body: bytes, headers: Mapping[str, str], secret: str) -> bool:
    key = _key(secret)
    if len(key) < SHORTEST:
        LOG.error("a webhook's secret is unusable: expected whsec_ and base64 of at least 24 bytes")
        return False
    try:
        Webhook(key).verify(body, dict(headers), json_parse=False)
    except (WebhookVerificationError, ValueError, OverflowError):  # ValueError: no base64, no UTF-8, no comma
        return False
    return True


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix("whsec_") + "==")
    except ValueError:
        return b""
