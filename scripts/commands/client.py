"""A small client of the HTTP API: JSON in and out, problem documents as refusals, retries only where they are safe."""

import json
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any, ClassVar, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from scripts.commands.advice import remedy
from scripts.commands.output import Refused

TIMEOUT = 35.0
"""Seconds an answer may take; the API itself gives up after 30."""
TRIES = 4
"""How often a GET is sent before a passing fault is believed."""
PASSING = frozenset({429, 502, 503, 504})
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class ApiRefused(Refused):
    """The API said no. ``status`` is the HTTP status."""

    def __init__(self, status: int, what: str, remedy: str = "", *, code: str = "refused") -> None:
        super().__init__(what, remedy, code=code)
        self.status = status


class Unreachable(Refused):
    """Nothing answered. ``is_up`` tells what to do about it."""

    def __init__(self, url: str, reason: str) -> None:
        remedy = f"Check the address ({url}) and the network."
        if urlsplit(url).hostname in LOCAL_HOSTS:
            remedy = "Is it up? `signalbox status` shows it, `signalbox up` starts it."
        super().__init__(f"The API cannot be reached: {reason}.", remedy, code="unreachable")


class Api:
    """The API at `url`, called with `token`. `slowest` is the longest pause (s) between two looks at its log."""

    slowest: ClassVar[float] = 3.0

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._opener = opener(self.url)

    def get(self, path: str, **query: str | int | None) -> dict[str, Any]:
        """GET `path`. None values are left out of the query. Raises ApiRefused, Unreachable."""
        given = urlencode({name: value for name, value in query.items() if value is not None})
        return self._repeated("GET", f"{path}?{given}" if given else path, None, {})[1]

    def post(self, path: str, body: Mapping[str, Any], *, key: str | None = None) -> tuple[int, dict[str, Any]]:
        """POST `body`; returns status and answer. Raises as `get` does.

        `key` goes along as Idempotency-Key: with it the request is sent again when its answer is lost.
        """
        headers, data = {"Content-Type": "application/json"}, json.dumps(dict(body)).encode()
        if key is None:
            return self._send("POST", path, data, headers)
        return self._repeated("POST", path, data, headers | {"Idempotency-Key": key})

    def stands_still(self, run: str) -> bool:  # noqa: ARG002 - a server drives all its runs
        """Tell whether nothing drives the run, so that there is nothing to wait for."""
        return False

    def _repeated(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        for attempt in range(1, TRIES):
            try:
                return self._send(method, path, data, headers)
            except ApiRefused as refused:
                if refused.status not in PASSING:
                    raise
            except Unreachable as fault:
                if "refused" in fault.what:  # nobody listens there: waiting does not help
                    raise
            time.sleep(0.2 * 2**attempt)
        return self._send(method, path, data, headers)

    def _send(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self._token}", **headers}
        request = Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310 - checked in opener
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                return _read(response, self.url)
        except HTTPError as error:
            raise refusal(error.code, error.read(), f"{method} {path}") from None
        except URLError as error:
            raise Unreachable(self.url, _why(error.reason)) from None
        except (OSError, HTTPException) as error:
            raise Unreachable(self.url, _why(error)) from None


def opener(url: str) -> OpenerDirector:
    """Return what opens `url`: directly on this machine, through the configured proxy elsewhere. Raises Refused."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Refused(f"{url!r} is no API address.", "Use http://... or https://...", code="bad_url")
    return build_opener(ProxyHandler({})) if parts.hostname in LOCAL_HOSTS else build_opener()


def _why(fault: object) -> str:
    """Return what went wrong, without an error number."""
    return str(getattr(fault, "strerror", None) or fault or type(fault).__name__)


def segment(text: str) -> str:
    """Return `text` as one segment of a path."""
    return quote(text, safe="")


def _read(response: HTTPResponse, url: str) -> tuple[int, dict[str, Any]]:
    try:
        return response.status, cast("dict[str, Any]", json.loads(response.read() or b"{}"))
    except ValueError:
        what = f"{url} answered with something else than JSON."
        raise Refused(what, "Check the address: is that Signalbox's API?", code="bad_answer") from None


def refusal(status: int, content: bytes, asked: str) -> ApiRefused:
    """Return what an error answer means, from its problem document where there is one."""
    try:
        problem = cast("dict[str, Any]", json.loads(content))
        detail, code = str(problem["detail"]), str(problem.get("code", "refused"))
    except (ValueError, KeyError, TypeError):
        detail = f"{asked} was answered with status {status}, without saying why."
        return ApiRefused(status, detail, NOT_OURS if status < SERVER_ERROR else FAILED_INSIDE)
    found = problem.get("correlation_id")
    told = f"Correlation id: {found}" if found else remedy(code, asked.partition(" ")[2])
    return ApiRefused(status, detail, told, code=code)


SERVER_ERROR = 500
NOT_OURS = "Check the address: is that Signalbox's API? `signalbox status` says whether the local one is up."
FAILED_INSIDE = "Something failed behind the API. Try again; the local cloud's log is .signalbox/local/aws.log."
