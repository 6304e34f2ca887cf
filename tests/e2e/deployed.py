"""The deployed app as its users see it: HTTP API, mailbox, approval page, the ERP behind it. Waits on conditions."""

from __future__ import annotations

import itertools
import json
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "workflows" / "samples"
NUMBERS = {
    "aurora-es": "26/00713",
    "contoso-en": "CO-2026-01847",
    "mistral-fr": "F-2026-0218",
    "nordlicht-de": "2026/10-0392",
}
"""The samples' own invoice numbers."""
PATIENCE = 60.0
"""Seconds that anything may take before a test gives up on it."""
SIGNATURE = "FA"
"""What the local environment's approver types: their initials."""


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def http(method: str, url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
    request = urllib.request.Request(url, data=body, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read().decode())


def until(found: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Return the first true value of ``found``; fail when it does not come in time."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {patience:.0f} s")


@dataclass
class Deployed:
    """A deployment on a local cloud of its own."""

    api_url: str
    mailbox_url: str
    rehearsal_url: str
    erp_url: str
    aws_url: str
    token: str
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def api(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"authorization": f"Bearer {self.token}", "content-type": "application/json", **named}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return http(method, self.api_url + path, data, sent)

    def start(self, document: str = "contoso-en", workflow: str = "invoice", **headers: str) -> str:
        """Start a run with a sample whose invoice number no other run has."""
        text = (SAMPLES / f"{document}.txt").read_text("utf-8")
        number = NUMBERS.get(document, "-")
        text = text.replace(number, f"{number}-{next(self.numbers)}")
        answer = self.api("POST", f"/v1/workflows/{workflow}/runs", {"input": {"document": text}}, **headers)
        assert answer.status == 201, answer.text
        return answer.json["run"]

    def run(self, run: str) -> dict[str, Any]:
        answer = self.api("GET", f"/v1/runs/{run}")
        assert answer.status == 200, answer.text
        return answer.json

    def reaches(self, run: str, *states: str, patience: float = PATIENCE) -> dict[str, Any]:
        """Wait until the run is in one of ``states`` and return it."""
        seen: list[dict[str, Any]] = [{}]

        def found() -> dict[str, Any] | None:
            seen[0] = self.run(run)
            return seen[0] if seen[0]["state"] in states else None

        try:
            return until(found, f"run {run}: {' or '.join(states)}", patience)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {json.dumps(seen[0], indent=1)}") from None

    def events(self, run: str) -> list[dict[str, Any]]:
        answer = self.api("GET", f"/v1/runs/{run}/events?limit=1000")
        assert answer.status == 200, answer.text
        return answer.json["events"]

    def link(self, run: str) -> str:
        """Return the approval link that was mailed for the run."""
        return until(lambda: self.links(run), f"a mail about run {run}")[0]

    def links(self, run: str) -> list[str]:
        """Return the approval links that were mailed for the run so far, each once, in their order."""
        boxes = http("GET", self.mailbox_url).json["messages"].values()
        texts = [mail["BodyText"] for box in boxes for mail in box if run in mail["BodyText"]]
        return list(dict.fromkeys(re.findall(r"http://\S+/approve/[\w.-]+", text)[0] for text in texts))

    def documents(self, run: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what the ERP holds for the run's invoice."""
        number = next(step for step in run["steps"] if step["path"] == "extract")["output"]["number"]
        held = http("GET", f"{self.erp_url}/documents").json["documents"]
        return [document for document in held if document["body"]["number"] == number]

    def faults(self, service: str, *faults: dict[str, Any], match: str = "") -> None:
        url = {"rehearsal": self.rehearsal_url, "erp": self.erp_url}[service]
        body = json.dumps({"next": list(faults), "match": match, "clear": True}).encode()
        answer = http("POST", f"{url}/_{service}/faults", body, {"content-type": "application/json"})
        assert answer.status == 200, answer.text


def consistent(run: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Assert what holds of every run that has ended."""
    from decimal import Decimal  # noqa: PLC0415

    assert [event["seq"] for event in events] == list(range(1, run["seq"] + 1))
    costs = [step["cost"] for step in run["steps"]]
    assert Decimal(run["spent"]["usd"]) == sum((Decimal(cost["usd"]) for cost in costs), Decimal(0))
    assert run["spent"]["tokens"] == sum(cost["tokens"] for cost in costs)
    assert Decimal(run["reserved"]["usd"]) == run["reserved"]["tokens"] == run["reserved"]["steps"] == 0
    assert events[-1]["type"] == f"run_{run['state']}"
