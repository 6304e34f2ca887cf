"""Small HTTP servers on 127.0.0.1 with faults on demand: the base of the rehearsal and of the ERP."""

import json
import re
import socket
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

HOST = "127.0.0.1"
_KEPT = 200
"""Requests remembered for tests."""


class Hangup(Exception):
    """The connection is to be closed without an answer."""


@dataclass(frozen=True)
class Fault:
    """One misbehaviour: wait `delay` seconds, then answer `status`, or close the line, or go on.

    With `after`, the request takes effect first and only its answer is lost. `match` is a regular
    expression over path and body; a fault meets the first request that fits.
    """

    status: int | None = None
    retry_after: float | None = None
    delay: float = 0
    hang_up: bool = False
    after: bool = False
    match: str = ""

    @staticmethod
    def read(given: Any, match: str) -> "Fault":
        """A fault from JSON; `match` is the default for all faults of one request.

        Raises:
            ValueError: For anything but an object with known fields; the message names them.
        """
        known = set(Fault.__dataclass_fields__)
        if not isinstance(given, dict) or not known.issuperset(given):  # pyright: ignore[reportUnknownArgumentType]
            raise ValueError(f"a fault is an object with some of {', '.join(sorted(known))}; got {given!r}")
        fields: dict[str, Any] = {"match": match, **given}
        re.compile(fields["match"])
        return Fault(**fields)


@dataclass
class Request:
    """A request, read completely."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON; an empty body is an empty object."""
        return json.loads(self.body or b"{}")

    @property
    def text(self) -> str:
        """Path and body, for matching."""
        return f"{self.path}\n{self.body.decode(errors='replace')}"


@dataclass
class Answer:
    """An answer: JSON, or ready bytes with their content type."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"

    def encoded(self) -> bytes:
        """The body's bytes."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Faults:
    """The faults still to come; each is used once."""

    def __init__(self) -> None:
        self._coming: list[Fault] = []
        self._lock = threading.Lock()

    def set(self, request: Any) -> int:
        """Add the faults of a control request; returns how many are waiting."""
        faults = [Fault.read(given, request.get("match", "")) for given in request.get("next", [])]
        with self._lock:
            self._coming = ([] if request.get("clear") else self._coming) + faults
            return len(self._coming)

    def take(self, text: str) -> Fault | None:
        """Take the first fault that fits `text`."""
        with self._lock:
            for number, fault in enumerate(self._coming):
                if re.search(fault.match, text):
                    return self._coming.pop(number)
        return None


class Service(ThreadingHTTPServer):
    """A server on 127.0.0.1; subclasses answer requests, this class adds faults and a memory of requests."""

    daemon_threads = True
    request_queue_size = 128
    name: ClassVar[str] = "service"

    def __init__(self, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.faults = Faults()
        self._counts: Counter[str] = Counter()
        self._last: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._memory = threading.Lock()

    def serve_forever(self, poll_interval: float = 0.02) -> None:
        """As the base class, but `shutdown` takes effect sooner."""
        super().serve_forever(poll_interval)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.server_address[1]}"

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        raise NotImplementedError

    def refusal(self, status: int, message: str) -> Answer:
        """The body that this service's errors have."""
        return Answer(status, {"error": message})

    def respond(self, request: Request) -> Answer:
        """Answer a control request, or an ordinary one under the next fault."""
        if request.path.startswith(f"/_{self.name}/"):
            return self._control(request)
        self._remember(request)
        fault = self.faults.take(request.text)
        if fault is None:
            return self.answer(request)
        answer = self.answer(request) if fault.after else None
        time.sleep(fault.delay)
        if fault.hang_up:
            raise Hangup
        if fault.status is not None:
            return self._faulty(fault, fault.status)
        return answer or self.answer(request)

    def _faulty(self, fault: Fault, status: int) -> Answer:
        answer = self.refusal(status, f"Fault on demand: {status}.")
        if fault.retry_after is not None:
            answer.headers["retry-after"] = str(fault.retry_after)
        return answer

    def _control(self, request: Request) -> Answer:
        what = request.path.split("/")[2]
        if what == "health":
            return Answer(200, {"service": self.name, "status": "ok"})
        if what == "faults" and request.method == "POST":
            return Answer(200, {"waiting": self.faults.set(request.json())})
        if what == "requests" and request.method == "GET":
            with self._memory:
                return Answer(200, {"count": self._counts.total(), "paths": dict(self._counts), "last": [*self._last]})
        return Answer(404, {"error": f"There is no {request.method} {request.path}: health, faults, requests."})

    def _remember(self, request: Request) -> None:
        # Headers are not kept: they hold keys.
        entry = {"method": request.method, "path": request.path, "body": request.body.decode(errors="replace")}
        with self._memory:
            self._counts[f"{request.method} {request.path}"] += 1
            self._last.append(entry)


class _Handler(BaseHTTPRequestHandler):
    """Reads a request, lets the service answer, writes the answer."""

    protocol_version = "HTTP/1.1"
    timeout = 120

    def _handle(self) -> None:
        service = self.server
        assert isinstance(service, Service)  # noqa: S101 - tells the type checker
        target = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", "0")))
        try:
            answer = service.respond(Request(self.command, target.path, query, headers, body))
        except Hangup:
            return self._hang_up()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            answer = service.refusal(400, f"{self.command} {target.path}: {error!r}")
        return self._write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815 - names given by http.server

    def _write(self, answer: Answer) -> None:
        body = answer.encoded()
        try:
            self.send_response(answer.status)
            for name, value in {"content-type": answer.content_type, **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the caller has gone, as after its own time-out

    def _hang_up(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - name given by http.server
        """One line a request, without its content."""
        print(f"{time.strftime('%H:%M:%S')} {format % args}", flush=True)
