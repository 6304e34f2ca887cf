"""The letter that asks for a decision, and how it is sent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from shared.approvals.letters import LetterWriter
from shared.approvals.links import verify
from shared.approvals.ses import SesMail
from shared.errors import PermanentFailure, RateLimited, TransientFailure
from shared.ports import Message
from shared.settings import Person
from shared.values import Value
from tests.unit.waiting_run import FIONA, INVOICE, KEY, OMAR, TENANT, URL, waiting

MESSAGE = Message("fiona@example.com", "Decision needed", "text", "<p>html</p>", {"Auto-Submitted": "auto-generated"})


def letter(person: Person = FIONA, **change):
    seen = waiting().journal().read_all()
    (gate,) = seen.gates()
    return LetterWriter(URL, KEY)(replace(gate, **change), seen.run, person, {"invoice": INVOICE, "score": 3})


def test_a_letter_says_what_is_asked_what_will_run_and_until_when():
    written = letter()
    assert (written.to, written.subject) == (
        FIONA.email,
        "Decision needed: Approve invoice from Contoso Büromöbel GmbH",
    )
    for body in (written.text, written.html):
        for expected in ("Fiona Ångström", "erp_post", "8420.5", "22 September 2026, 14:13 UTC", "Desk", "invoice"):
            assert expected in body
    assert '"vendor": "Contoso Büromöbel GmbH"' in written.text
    assert "&#34;vendor&#34;: &#34;Contoso Büromöbel GmbH&#34;" in written.html


def test_each_letter_has_its_own_link_under_the_public_address():
    links = []
    for person in (FIONA, OMAR):
        written = letter(person)
        (line,) = [line.strip() for line in written.text.splitlines() if "/approve/" in line]
        assert line.startswith(f"{URL}/approve/")
        assert line in written.html
        link = verify(line.removeprefix(f"{URL}/approve/"), [KEY], 0)
        assert (link.email, link.tenant, link.path) == (person.email, TENANT, "review")
        links.append(line)
    assert links[0] != links[1]


def test_a_subject_cannot_break_out_of_its_header():
    written = letter(subject="Approve\r\nBcc: everyone@example.com\n\n\u202e<b>x\x00")
    assert written.subject == "Decision needed: Approve Bcc: everyone@example.com \\u202e<b>x\\u0000"
    assert "&lt;b&gt;x" in written.html
    assert "<b>x" not in written.html
    assert len(letter(subject="x" * 500).subject) <= 160


@pytest.mark.parametrize("address", ["a\r\nBcc: b@example.com", "nobody", "a@b, c@d", "", "<a@b>", "a b@c"])
def test_an_address_that_is_none_is_refused(address: str):
    with pytest.raises(PermanentFailure, match="no mail address"):
        letter(Person("A", "A", address))


def test_long_values_are_left_to_the_page():
    written = letter(arguments=Value("d", 9000, blob="somewhere"))
    assert "The arguments are long: the page shows them exactly." in written.text
    long = letter(arguments=Value("d", 8000, text=f'{{"a":"{"x" * 7000}"}}'))
    assert "x" * 5000 not in long.text
    assert len(letter().html) < 12_000


def test_a_gate_that_approves_nothing_writes_no_arguments():
    written = letter(approves=None, tool=None, risk=None, arguments=None, digest="")
    assert "SHA-256" not in written.text
    assert "What will run" not in written.html


class Client:
    """An SES client that remembers, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent = []

    def send_email(self, **request):
        if self.error:
            raise self.error
        self.sent.append(request)


def test_mail_is_sent_in_text_and_html():
    client = Client()
    SesMail(client, "signalbox@example.com").send(MESSAGE)
    (request,) = client.sent
    assert request["FromEmailAddress"] == "signalbox@example.com"
    assert request["Destination"] == {"ToAddresses": ["fiona@example.com"]}
    simple = request["Content"]["Simple"]
    assert simple["Subject"] == {"Data": "Decision needed", "Charset": "UTF-8"}
    assert (simple["Body"]["Text"]["Data"], simple["Body"]["Html"]["Data"]) == ("text", "<p>html</p>")
    assert simple["Headers"] == [{"Name": "Auto-Submitted", "Value": "auto-generated"}]


def refused(code: str, status: int) -> ClientError:
    answer = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "SendEmail")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (refused("TooManyRequestsException", 429), RateLimited),
        (refused("InternalServiceErrorException", 500), TransientFailure),
        (refused("ServiceUnavailable", 503), TransientFailure),
        (refused("MessageRejected", 400), PermanentFailure),
        (refused("LimitExceededException", 400), PermanentFailure),
        (refused("SendingPausedException", 400), PermanentFailure),
        (EndpointConnectionError(endpoint_url="x"), TransientFailure),
        (ReadTimeoutError(endpoint_url="x"), TransientFailure),
    ],
)
def test_a_failure_to_send_has_the_class_that_the_cascade_needs(error, expected):
    with pytest.raises(expected, match=r"fiona@example\.com"):
        SesMail(Client(error), "signalbox@example.com").send(MESSAGE)
