"""Reading what callers send: JSON bodies, query values, names and ids. Everything unreadable is refused by name."""

from __future__ import annotations

import difflib
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, cast

from shared import values
from shared.api.problems import UnsupportedMediaType
from shared.errors import InvalidRequest, NotFound, PermanentFailure
from shared.ids import is_ulid

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shared.api.web import Request

WORKFLOW = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)
_APPROVAL = re.compile(r"([0-9A-HJKMNP-TV-Z]{26})\.([0-9a-f]{16})", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,15}", re.ASCII)
_KEY = re.compile(r"[\x21-\x7e]{1,200}", re.ASCII)
_LARGEST = 10**15
NOTE_LIMIT = 2000
"""Longest note of a decision, in characters."""


def json_object(request: Request, allowed: Collection[str]) -> dict[str, Any]:
    """Return the body as an object that has only ``allowed`` fields; no body is an empty object.

    Raises UnsupportedMediaType or InvalidRequest.
    """
    if not request.body.strip():
        return {}
    _check_content_type(request)
    data = parsed(request.body)
    if not isinstance(data, dict):
        raise InvalidRequest("The body must be a JSON object: {...}.", code="invalid_body")
    found = cast("dict[str, Any]", data)
    _check_names(found, allowed, "field")
    return found


def _check_content_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType("Send the body as Content-Type: application/json.")


def parsed(body: bytes) -> Any:
    """Return a JSON body. Raises InvalidRequest."""
    try:
        data = json.loads(body.decode(), parse_constant=_no_number)
        values.canonical(data)
    except (ValueError, RecursionError, PermanentFailure) as error:
        raise InvalidRequest(f"The body is not readable JSON: {str(error)[:200]}", code="invalid_body") from error
    return data


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _check_names(given: Mapping[str, Any], allowed: Collection[str], kind: str) -> None:
    for name in given:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(allowed)) or 'none'}."
            raise InvalidRequest(f"Unknown {kind} {name[:60]!r}. {hint}", code=f"unknown_{kind}")


def text_field(data: Mapping[str, Any], name: str, *, limit: int, default: str | None = None) -> str:
    """Return a text field of at most ``limit`` characters. Raises InvalidRequest."""
    value = data.get(name, default)
    if not isinstance(value, str) or len(value) > limit:
        raise InvalidRequest(f"Field {name} must be a text of at most {limit} characters.", code="invalid_field")
    return value


def choice_field(data: Mapping[str, Any], name: str, options: Collection[str]) -> str:
    """Return a field that names one of ``options``. Raises InvalidRequest."""
    value = data.get(name)
    if not isinstance(value, str) or value not in options:
        raise InvalidRequest(f"Field {name} must be one of: {', '.join(options)}.", code="invalid_field")
    return value


def object_field(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a field that holds an object, which is not empty. Raises InvalidRequest."""
    value = data.get(name)
    if not isinstance(value, dict) or not value:
        raise InvalidRequest(f"Field {name} must be an object that says something.", code="invalid_field")
    return cast("dict[str, Any]", value)


def whole_field(data: Mapping[str, Any], name: str, *, low: int, default: int | None = None) -> int | None:
    """Return a whole number from ``low`` to 10^15. Raises InvalidRequest."""
    value = data.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _LARGEST:
        raise InvalidRequest(f"Field {name} must be a whole number from {low}.", code="invalid_field")
    return value


def usd_field(data: Mapping[str, Any], name: str) -> Decimal | None:
    """Return an amount of USD, given as a number or a decimal text. Raises InvalidRequest."""
    value = data.get(name)
    if value is None:
        return None
    text = str(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII):
        raise InvalidRequest(
            f'Field {name} must be an amount of USD such as "0.25", with up to 9 digits after the point.',
            code="invalid_field",
        )
    return Decimal(text)


def query(request: Request, allowed: Collection[str]) -> Mapping[str, str]:
    """Return the query values; unknown names are refused. Raises InvalidRequest."""
    _check_names(request.query, allowed, "parameter")
    return request.query


def whole_query(given: Mapping[str, str], name: str, *, default: int, low: int, high: int) -> int:
    """Return a whole number of the query, from ``low`` to ``high``. Raises InvalidRequest."""
    text = given.get(name)
    if text is None:
        return default
    if _DIGITS.fullmatch(text) is None or not low <= int(text) <= high:
        raise InvalidRequest(f"Parameter {name} must be a whole number from {low} to {high}.", code="invalid_parameter")
    return int(text)


def run_id(text: str) -> str:
    """Return ``text`` if it is a run's id. Raises InvalidRequest."""
    if not is_ulid(text):
        raise InvalidRequest(f"{text[:60]!r} is no run id: those are ULIDs of 26 characters.", code="invalid_id")
    return text


def approval_ref(text: str) -> tuple[str, str]:
    """Return the run's and the gate's id that make an approval's id. Raises InvalidRequest."""
    found = _APPROVAL.fullmatch(text)
    if found is None or not is_ulid(found[1]):
        raise InvalidRequest(f"{text[:80]!r} is no approval id: those are <run id>.<16 characters>.", code="invalid_id")
    return found[1], found[2]


def workflow_name(text: str) -> str:
    """Return ``text`` if a workflow can have that name. Raises NotFound: none has."""
    if WORKFLOW.fullmatch(text) is None:
        raise NotFound(f"There is no workflow {text[:60]!r}.")
    return text


def workflow_query(text: str) -> str:
    """Return the query value ``workflow`` if a workflow can have that name. Raises InvalidRequest."""
    if WORKFLOW.fullmatch(text) is None:
        raise InvalidRequest(f"Parameter workflow: {text[:60]!r} is no workflow's name.", code="invalid_parameter")
    return text


def idempotency_key(request: Request) -> str | None:
    """Return the Idempotency-Key, if one was sent. Raises InvalidRequest for one that is not 1 to 200 ASCII signs."""
    key = request.headers.get("idempotency-key")
    if key is not None and _KEY.fullmatch(key) is None:
        raise InvalidRequest("Idempotency-Key must have 1 to 200 visible ASCII characters.", code="invalid_key")
    return key
