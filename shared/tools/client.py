"""HTTP for built-in tools: one request, without retries, to checked addresses, within one deadline and size limits."""

from __future__ import annotations

import re
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.clock import retry_after
from shared.errors import (
    PermanentFailure,
    RateLimited,
    StepFailure,
    StepTimeout,
    TooLarge,
    TransientFailure,
    UnclearAnswer,
    Unreached,
)
from shared.redaction import cut, redacted_text
from shared.tools import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from shared.tools.guard import Allowed, Target

MARGIN = 1.0
"""Seconds of the step's time that are kept for recording the result."""
CONNECT = 5.0
"""Seconds for one address to take a connection."""
LARGEST_REQUEST = 8 * 1024 * 1024
LARGEST_ANSWER = 8 * 1024 * 1024
"""Bytes of a body, after decompression."""
MOST_REDIRECTS = 3
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing. Source: RFC 9110, 9.2.1."""
_TOLD = 300
"""Characters of a refusal's body that its message quotes."""
_CHUNK = 64 * 1024
LONGEST_HEADER = 8_000
"""Characters of a header's value that is sent."""
_VALUE = re.compile(rf"(?![ \t])[\x20-\x7e\t]{{0,{LONGEST_HEADER}}}(?<![ \t])")
_MOVED = frozenset({301, 302, 303, 307, 308})


class Net(NamedTuple):
    """The way outside: what the deployment allows, and who resolves names."""

    allowed: Allowed
    resolve: Callable[[str, int], Sequence[str]] = guard.system


class Ask(NamedTuple):
    """One request. ``deadline`` in seconds of the monotonic clock; ``expect`` empty = every status from 200 to 299.

    ``enough`` is told each piece of the body, once, and says whether more of it is unwanted. ``largest`` is
    how many bytes of it are read.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    deadline: float
    expect: frozenset[int] = frozenset()
    enough: Callable[[Reply], bool] | None = None
    largest: int = LARGEST_ANSWER


class Reply(NamedTuple):
    """The answer: its status, its headers in small letters, its decompressed body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def deadline_of(timeout: float) -> float:
    """Return the moment by which a call of a step with this time-out (s) must have its answer."""
    return time.monotonic() + max(timeout - MARGIN, timeout / 2)


def send(net: Net, ask: Ask) -> Reply:
    """Send a request and read its answer.

    Raises PermanentFailure where the guard refuses it and for what the far side refuses, Unreached when nothing was
    sent, StepTimeout, RateLimited, TransientFailure, UnclearAnswer for a status that says neither yes nor no, and
    TooLarge.
    """
    if ask.body is not None and len(ask.body) > LARGEST_REQUEST:
        raise PermanentFailure(f"The request's body has {len(ask.body):,} bytes; at most {LARGEST_REQUEST:,} are sent.")
    check_headers(ask.headers)
    target = guard.target_of(ask.url, net.allowed)
    for _ in range(MOST_REDIRECTS + 1):
        reply = _once(net, ask, target)
        further = _moved(net, ask, target, reply)
        if further is None:
            return reply
        target = further
    raise PermanentFailure(f"{target.host} redirects {ask.method} more than {MOST_REDIRECTS} times.")


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise PermanentFailure for a header that cannot be sent; its value may be a secret, so it is not told."""
    for name, value in headers.items():
        if not _VALUE.fullmatch(value):
            told = f"The header {cut(name, 60)!r} has a value that no header can have"
            raise PermanentFailure(
                f"{told}: only ASCII is sent, without line breaks and without spaces at its ends, "
                f"at most {LONGEST_HEADER:,} characters."
            )


def _moved(net: Net, ask: Ask, target: Target, reply: Reply) -> Target | None:
    """Return where a safe request goes on; only to the same server, and checked like the first. None = it is done."""
    location = reply.headers.get("location")
    if reply.status not in _MOVED or reply.status in ask.expect or ask.method not in SAFE or not location:
        check_status(ask, target.host, reply)
        return None
    base = f"{target.scheme}://{target.authority}"
    further = guard.target_of(f"{base}{location}" if location.startswith("/") else location, net.allowed)
    if further.origin != target.origin:
        raise PermanentFailure(f"{target.host} redirects to {further.authority}. Ask for that address directly.")
    return further


def check_status(ask: Ask, host: str, reply: Reply) -> None:
    """Raise the failure that an unexpected status means."""
    status = reply.status
    if status in ask.expect or (not ask.expect and 200 <= status < 300):  # noqa: PLR2004 - success, RFC 9110
        return
    raise failure_of(ask.method, host, reply)


def failure_of(method: str, host: str, reply: Reply) -> StepFailure:
    """Return the failure that a status means."""
    status, wish = reply.status, retry_after(reply.headers.get("retry-after"))
    quoted = cut(redacted_text(" ".join(reply.body.decode(errors="replace").split())), _TOLD)
    told = f"{host} answered {method} with {status}: {quoted or 'no reason given'}"
    match status:
        case 408:
            return StepTimeout(told)
        case 429:
            return RateLimited(told, retry_after=wish)
        case _ if status >= 500:  # noqa: PLR2004 - the far side's own fault
            return TransientFailure(told, retry_after=wish)
        case _ if status >= 400:  # noqa: PLR2004 - refused
            return PermanentFailure(told)
        case _:
            return UnclearAnswer(f"{told}. If that is as it should be, name the status in `expect`.")


def _once(net: Net, ask: Ask, target: Target) -> Reply:
    import httpcore2 as http  # noqa: PLC0415 - half a second of imports, only where something is asked

    from shared.tools.wire import Wire  # noqa: PLC0415 - with it

    wire = Wire(_resolved(net, target, ask.deadline), ask.deadline, CONNECT)
    url = http.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    headers = [("host", target.authority), ("accept-encoding", "identity"), *ask.headers.items()]
    if ask.body is not None or ask.method not in SAFE:
        headers.append(("content-length", str(len(ask.body or b""))))
    try:
        with (
            http.ConnectionPool(network_backend=wire, max_connections=1, retries=0) as pool,
            pool.stream(ask.method, url, headers=headers, content=ask.body) as answer,
        ):
            return _read(ask, target, answer)
    except (http.ConnectError, http.ConnectTimeout, http.PoolTimeout) as error:
        raise Unreached(f"{target.host} cannot be reached: {error or 'it takes no connection in time'}") from None
    except http.TimeoutException:
        raise StepTimeout(f"{target.host} did not answer {ask.method} in time.") from None
    except (http.LocalProtocolError, http.UnsupportedProtocol):  # its text quotes headers, which may be secrets
        raise PermanentFailure(f"The request to {target.host} cannot be sent: HTTP allows none like it.") from None
    except (http.NetworkError, http.ProtocolError) as error:
        raise TransientFailure(f"The connection to {target.host} was lost: {error}") from None


def _resolved(net: Net, target: Target, deadline: float) -> tuple[str, ...]:
    """Resolve the target's name within the deadline: the system's own function knows none."""
    found: list[tuple[str, ...] | Exception] = []

    def ask() -> None:
        try:
            found.append(guard.addresses(target, net.allowed, net.resolve))
        except Exception as error:  # noqa: BLE001 - passed on below
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(max(0.0, deadline - time.monotonic()))
    if not found:
        raise Unreached(f"The name {target.host} was not resolved in time.")
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _read(ask: Ask, target: Target, answer: Any) -> Reply:
    start = Reply(int(answer.status), _headers(answer.headers), b"")
    return start if ask.method == "HEAD" else _whole(ask, target, start, answer.iter_stream())


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _whole(ask: Ask, target: Target, start: Reply, chunks: Iterable[bytes]) -> Reply:
    """Return the answer, decompressed piece by piece so that none grows beyond the limit. Raises TooLarge."""
    found, encoding = bytearray(), start.headers.get("content-encoding", "").strip().lower()
    for piece in _plain(target, encoding, chunks):
        found += piece
        if len(found) > ask.largest:
            raise TooLarge(f"The answer of {target.host} has more than {ask.largest:,} bytes.")
        if ask.enough and ask.enough(start._replace(body=piece)):
            break
    return start._replace(body=bytes(found))


def _plain(target: Target, encoding: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    if encoding in {"", "identity"}:
        yield from chunks
        return
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise UnclearAnswer(
            f"The answer of {target.host} is encoded as {cut(encoding, 40)!r}, which was not asked for."
        )
    try:
        yield from _unpacked(chunks)
    except (zlib.error, EOFError) as error:
        raise UnclearAnswer(f"The answer of {target.host} cannot be decompressed: {error}") from None


def _unpacked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what was compressed; nothing from nothing. Raises zlib.error, and EOFError where the end is missing."""
    unpack, began = zlib.decompressobj(zlib.MAX_WBITS | 32), False
    for chunk in chunks:
        rest = chunk
        while rest and not unpack.eof:
            began = True
            yield unpack.decompress(rest, _CHUNK)
            rest = unpack.unconsumed_tail
        if unpack.eof:
            return  # whatever stands behind it is no part of the answer
    while piece := unpack.decompress(b"", _CHUNK):
        yield piece
    if began and not unpack.eof:
        raise EOFError("it ends too early")
