"""The connection below HTTP: to addresses that were checked, and over when the deadline is. The client imports it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpcore2 as http

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable


class Wire(http.NetworkBackend):
    """Connects to the first of ``addresses`` that answers, whatever name it is asked for; times in seconds."""

    def __init__(self, addresses: tuple[str, ...], deadline: float, connect: float) -> None:
        self._addresses, self._deadline, self._connect = addresses, deadline, connect
        self._system = http.SyncBackend()

    def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - the name was resolved and checked before
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the deadline decides
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> http.NetworkStream:
        """Return a connection. Raises ConnectError or ConnectTimeout."""
        failed: Exception = http.ConnectTimeout("no time was left")
        for address in self._addresses:
            left = min(self._connect, self._deadline - time.monotonic())
            if left <= 0:
                break
            try:
                made = self._system.connect_tcp(address, port, left, local_address, socket_options)
            except (http.ConnectError, http.ConnectTimeout) as error:
                failed = error
            else:
                return Stream(made, self._deadline)
        raise failed


class Stream(http.NetworkStream):
    """A connection on which nothing takes longer than to the deadline, however slowly the far side talks."""

    def __init__(self, inner: http.NetworkStream, deadline: float) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - the deadline decides
        """Return what has come. Raises ReadTimeout."""
        return self._inner.read(max_bytes, self._left(http.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - the deadline decides
        """Send. Raises WriteTimeout."""
        self._inner.write(buffer, self._left(http.WriteTimeout))

    def close(self) -> None:
        """Close it."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002 - the deadline decides
    ) -> http.NetworkStream:
        """Return the encrypted connection; the certificate must be that of the name. Raises ConnectError."""
        left = self._left(http.ConnectTimeout)
        return Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return what is known of the connection."""
        return self._inner.get_extra_info(info)

    def _left(self, late: type[Exception]) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise late("the deadline has passed")
        return left
