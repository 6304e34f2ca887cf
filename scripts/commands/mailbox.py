"""The local cloud's mailbox, and the approval page as a person would use it."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urljoin
from urllib.request import Request

from scripts.commands.client import opener
from scripts.commands.output import Refused

PATIENCE = 20.0
"""Seconds that a mail may take."""
_LINK = re.compile(r"https?://[^\s\"'<>]+/approve/[^\s\"'<>]+")


@dataclass(frozen=True)
class Mail:
    """One mail with the link in it."""

    to: str
    subject: str
    link: str


def wait_for(mailbox_url: str, run: str, since: float) -> Mail:
    """Return the mail that asks for a decision in `run`, sent after `since` (s since the epoch). Raises Refused."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = newest(messages(mailbox_url), run, since)
        if found:
            return found
        time.sleep(0.3)
    what = f"No mail with an approval link has arrived within {PATIENCE:.0f} s."
    raise Refused(what, f"Look at {mailbox_url} and at `signalbox runs events {run}`.", code="no_mail")


def messages(mailbox_url: str) -> list[Mapping[str, Any]]:
    """Return every mail that was sent, oldest first."""
    with opener(mailbox_url).open(mailbox_url, timeout=10) as answer:
        by_account: dict[str, list[Mapping[str, Any]]] = json.loads(answer.read())["messages"]
    mails = (mail for group in by_account.values() for mail in group)
    return sorted(mails, key=lambda mail: float(mail["Timestamp"]))


def newest(mails: list[Mapping[str, Any]], run: str, since: float) -> Mail | None:
    """Return the newest of these mails that has a link and belongs to `run`."""
    for mail in reversed(mails):
        text = f"{mail.get('BodyText', '')}\n{mail.get('BodyHtml', '')}"
        link = _LINK.search(text)
        if link and float(mail["Timestamp"]) >= since and (run in text or run in link[0]):
            return Mail(", ".join(mail["To"]), str(mail["Subject"]), link[0])
    return None


@dataclass
class Form:
    """A form of a page: where it goes, what is filled in already, what a person has to type, which buttons it has."""

    action: str = ""
    method: str = "get"
    values: dict[str, str] = field(default_factory=dict[str, str])
    typed: list[str] = field(default_factory=list[str])
    buttons: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get").lower()))
            self._inside = True
        elif self._inside and given.get("name"):
            self._field(tag, given)

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "form"

    def _field(self, tag: str, given: Mapping[str, str]) -> None:
        form, name = self.forms[-1], given["name"]
        kind = given.get("type", "submit" if tag == "button" else "text")
        if kind == "submit":
            form.buttons.append((name, given.get("value", "")))
        elif tag == "input" and kind == "hidden":
            form.values[name] = given.get("value", "")
        elif tag == "input" and kind in {"radio", "checkbox"}:
            form.buttons.append((name, given.get("value", "on")))
        elif tag in {"input", "textarea"}:
            form.values[name] = given.get("value", "")
            form.typed += [name] if "required" in given else []


def forms(page: str) -> list[Form]:
    """Return the forms of an HTML page."""
    parser = _Forms()
    parser.feed(page)
    return parser.forms


def approve(link: str, initials: str) -> str:
    """Open the page behind `link`, type `initials` where something must be typed, and press approve.

    Returns the page that answers. Raises Refused where the page is not as expected.
    """
    page = _open(link)
    form = next((form for form in forms(page) if form.method == "post"), None)
    if form is None:
        raise Refused(
            "The approval page has no form: it may be decided or expired.", f"Look at {link}.", code="no_form"
        )
    button = next((button for button in form.buttons if button[1].startswith("approve")), None)
    if button is None or len(form.typed) != 1:
        raise Refused("The approval page's form is not as expected.", f"Look at {link}.", code="bad_form")
    filled = {**form.values, form.typed[0]: initials, button[0]: button[1]}
    # An empty target is the page itself; a relative one is resolved as a browser does.
    return _open(urljoin(link, form.action) if form.action else link, urlencode(filled).encode())


def _open(url: str, data: bytes | None = None) -> str:
    headers = {"Content-Type": "application/x-www-form-urlencoded"} if data is not None else {}
    request = Request(url, data=data, headers=headers)  # noqa: S310 - opener checks it
    try:
        with opener(url).open(request, timeout=35) as answer:
            return answer.read().decode()
    except HTTPError as error:
        text = " ".join(re.sub(r"<[^>]+>", " ", error.read().decode(errors="replace")).split())[:300]
        raise Refused(
            f"The approval page answered {error.code}: {text}", f"Look at {url}.", code="page_refused"
        ) from None
    except (URLError, OSError, HTTPException) as error:
        raise Refused(f"The approval page cannot be reached: {error}", "Is it up? `signalbox status`.") from None
