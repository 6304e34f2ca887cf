"""Signed requests: Standard Webhooks, verified by its own library. Every no sounds the same."""

from __future__ import annotations

import base64
import logging
import re
from typing import TYPE_CHECKING

from standardwebhooks import Webhook, WebhookVerificationError

from shared.errors import Unverified
from shared.triggers.occurrences import SIGNED_HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG = logging.getLogger("signalbox")
_FORMS = {
    "webhook-id": re.compile(r"[\x21-\x2d\x2f-\x7e]+"),  # without `.`, which divides what is signed
    "webhook-timestamp": re.compile(r"[0-9]+"),
    "webhook-signature": re.compile(r"[\x20-\x7e]+"),
}
"""Source: Standard Webhooks specification, "Signature scheme"."""
SHORTEST = 24
"""Bytes of a secret. Source: Standard Webhooks specification, "Signature scheme"."""
_SPLIT = re.compile(r"[\s,]+")


def check_form(headers: Mapping[str, str]) -> str:
    """Return the webhook's id, before anybody asks for secrets. Raises Unverified when a header cannot be right."""
    for name, form in _FORMS.items():
        text = headers.get(name, "")
        if len(text) > SIGNED_HEADERS[name] or form.fullmatch(text) is None:
            raise Unverified
    return headers["webhook-id"]


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
