"""A server on 127.0.0.1 that sends exactly the bytes that a test says, when it says so."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass
class Got:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class RawServer:
    """``answer`` yields bytes to send, or seconds to wait; nothing at all closes the connection without an answer."""

    answer: Callable[[Got], Iterable[bytes | float]]
    got: list[Got] = field(default_factory=list)

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                request = _read(connection)
                self.got.append(request)
                for part in self.answer(request):
                    if isinstance(part, bytes):
                        connection.sendall(part)
                    else:
                        time.sleep(part)
            except OSError:
                return


def _read(connection: socket.socket) -> Got:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    line, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    return Got(line, headers, body)


def reply(body: bytes = b"{}", status: str = "200 OK", **headers: str) -> bytes:
    """Return a whole answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {"content-type": "application/json", "content-length": str(len(body)), **named}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + body
