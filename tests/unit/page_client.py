"""A visitor of the approval page, as API Gateway delivers them."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from shared.approvals.pages import respond
from tests.unit.waiting_run import FIONA

if TYPE_CHECKING:
    from shared.api.web import Response
    from shared.settings import Person
    from tests.unit.waiting_run import World

FORM = {"content-type": "application/x-www-form-urlencoded"}


def token(world: World, person: Person = FIONA) -> str:
    (letter,) = [message for message in world.outbox.messages if message.to == person.email]
    return re.findall(r"/approve/(\S+)", letter.text)[0]


def visit(world: World, method: str = "GET", person: Person = FIONA, **more: Any) -> Response:
    """Open the page of ``person``, with the real event's form."""
    event = {
        "rawPath": f"/approve/{more.pop('token', None) or token(world, person)}",
        "requestContext": {"http": {"method": method}, "requestId": "request-7"},
        "headers": more.pop("headers", {}),
        "body": more.pop("body", None),
        **more,
    }
    answer = respond(lambda: world.approvals, event)
    assert answer.content_type == "text/html; charset=utf-8"
    return answer


def send(world: World, person: Person = FIONA, headers: dict[str, str] | None = None, **fields: str) -> Response:
    """Send the form as a browser does, with everything that the page had put into it."""
    page = visit(world, person=person).body
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    given = {**dict(hidden), "signature": person.initials, "note": "", "decision": "approve", **fields}
    body = base64.b64encode(urlencode(given).encode()).decode()
    return visit(world, "POST", person, body=body, isBase64Encoded=True, headers={**FORM, **(headers or {})})


def status(world: World) -> str:
    (gate,) = world.journal().read_all().gates()
    return gate.status


def text(answer: Response) -> str:
    """Return the page's visible text."""
    found = list[str]()
    parser = HTMLParser()
    parser.handle_data = found.append  # type: ignore[method-assign]
    parser.feed(re.sub(r"(?s)<style>.*?</style>", "", answer.body))
    return " ".join(" ".join(found).split())
