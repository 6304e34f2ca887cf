"""Links in letters: each is signed for one recipient and one request of a gate, so whoever opens it is known by it.

``<payload>.<MAC>``, both base64url. The payload is JSON and names the key that signed it; the MAC covers its text.
A link says who looks, never that they agree: opening it decides nothing.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shared.errors import NotFound, RequestRefused
from shared.ids import mac, sha256

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORM = re.compile(r"([A-Za-z0-9_-]{1,2000})\.([A-Za-z0-9_-]{43})", re.ASCII)
"""Form of a token: nothing else is looked at."""
_PURPOSE = b"signalbox approval link 1\0"


class LinkExpired(RequestRefused):
    """The link is genuine and its time is over."""

    status = 410
    code = "link_expired"


@dataclass(frozen=True, slots=True)
class Link:
    """Whom a link is for, the gate it leads to, and until when it opens (``exp``, ms since the epoch).

    ``request`` is the id of what was asked: a gate that is asked once more has another. Links of older versions have
    none: theirs is the gate's first.
    """

    tenant: str
    run: str
    path: str
    request: str
    email: str
    exp: int


def sign(link: Link, key: bytes) -> str:
    """Return the link's token. It is a secret of its recipient."""
    data = {**asdict(link), "kid": key_id(key)}
    payload = _encode(json.dumps(data, separators=(",", ":"), sort_keys=True).encode())
    return f"{payload}.{_encode(_mac(key, payload))}"


def verify(token: str, keys: Iterable[bytes], now: int) -> Link:
    """Return the link behind a token; ``now`` in milliseconds.

    Raises NotFound for anything that none of ``keys`` has signed, LinkExpired when its time is over.
    """
    form = _FORM.fullmatch(token)
    if form is None or not any(_signed(form[1], form[2], key) for key in keys):
        raise NotFound("This link is not one of ours. It may have been cut or changed on its way.", code="unknown_link")
    data: dict[str, Any] = {"request": "", **json.loads(_decode(form[1]))}
    link = Link(**{name: value for name, value in data.items() if name != "kid"})
    if now >= link.exp:
        raise LinkExpired("This link has expired.")
    return link


def key_id(key: bytes) -> str:
    """Return the name of a key, which tells nothing about it."""
    return sha256(b"key id\0" + key)[:8]


def _mac(key: bytes, payload: str) -> bytes:
    return mac(key, _PURPOSE + payload.encode())


def _signed(payload: str, signature: str, key: bytes) -> bool:
    """Compare in constant time, as text: a signature has one valid form."""
    return hmac.compare_digest(_encode(_mac(key, payload)), signature)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
