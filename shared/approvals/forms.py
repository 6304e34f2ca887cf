"""Reading the page's form, and whether the person who sends it is the one the link is for."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from shared.api.problems import UnsupportedMediaType
from shared.approvals.changes import PREFIX
from shared.errors import Forbidden, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.web import Request
    from shared.settings import Person

MAX_FORM = 256 * 1024
"""Largest form in bytes."""
NOTE_LIMIT = 2000
_MOST_FIELDS = 200
_OWN_SITES = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class Form:
    """What was sent: the decision, the signature, the note, the digest of what was shown, the arguments as typed."""

    decision: str = ""
    signature: str = ""
    note: str = ""
    digest: str | None = None
    typed: Mapping[str, str] = field(default_factory=dict[str, str])


def parse(request: Request) -> Form:
    """Return the form. Raises UnsupportedMediaType or InvalidRequest for what no browser sends from our page."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise UnsupportedMediaType("Please use the form on this page.")
    try:
        fields = parse_qs(request.body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidRequest("The form could not be read. Please go back and try again.") from error
    first = {name: values[0] for name, values in fields.items()}
    # Browsers send every line's end as two characters.
    first = {name: text.replace("\r\n", "\n") for name, text in first.items()}
    typed = {name.removeprefix(PREFIX): text for name, text in first.items() if name.startswith(PREFIX)}
    note, digest = first.get("note", ""), first.get("digest")
    return Form(first.get("decision", ""), first.get("signature", ""), note, digest, typed)


def check_origin(request: Request) -> None:
    """Refuse a form that another site sends. The link itself is the secret; this is a second lock.

    With ``Referrer-Policy: no-referrer`` browsers send ``Origin: null`` from our own page, so that proves nothing.
    Raises Forbidden.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        own = site in _OWN_SITES
    else:
        own = origin in {None, "null"} or urlsplit(origin or "").netloc == request.headers.get("host")
    if not own:
        raise Forbidden("This form was sent from another site. Open the link in your mail and decide there.")


def is_signed(form: Form, person: Person) -> bool:
    """Tell whether the signature is the person's name or initials: case, spacing and Unicode form do not matter."""
    signature = _plain(form.signature)
    return bool(signature) and signature in {_plain(person.name), _plain(person.initials)}


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())
