"""Secrets in a tool's arguments: named in everything that is kept or shown, known only to the call itself.

``${ secrets.token }``, alone or inside text, renders to a *reference*: ``{"$secret": ["Bearer ", "token@v7", ""]}``
holds text and, at odd places, name and version. So the ledger, digests and approvals are about exactly one version,
and hold no value. A reference counts only where the definition has one: what comes from inputs, models or people is
data, whatever it looks like.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, quote_plus

from shared.definition.expressions import SECRET, Slot, as_text, parts
from shared.errors import PermanentFailure, PolicyViolation, StepFailure
from shared.redaction import CUT
from shared.redaction import MARK as REDACTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shared.ports import Secrets

REFERENCE = "$secret"
SHORTEST = 4
"""Characters of a value. A shorter one could not be taken out of what a tool returns without taking out everything."""


def uses(template: Any) -> bool:
    """Tell whether a template reads secrets."""
    if isinstance(template, str):
        return "secrets" in template and any(_name(part) for part in parts(template))
    if isinstance(template, dict):
        return any(map(uses, cast("dict[str, Any]", template).values()))
    return isinstance(template, list | tuple) and any(map(uses, cast("list[Any]", template)))


def rendered(template: Any, render: Callable[[Any], Any], secrets: Secrets, tenant: str) -> Any:
    """Return a rendered template in which secrets are named, with their newest versions. Raises StepFailure."""
    if not uses(template):
        return render(template)
    if isinstance(template, dict):
        given = cast("dict[str, Any]", template)
        return {key: rendered(value, render, secrets, tenant) for key, value in given.items()}
    if isinstance(template, str):
        return {REFERENCE: list(_referring(template, render, secrets, tenant))}
    return [rendered(value, render, secrets, tenant) for value in cast("list[Any]", template)]


def _referring(text: str, render: Callable[[Any], Any], secrets: Secrets, tenant: str) -> Iterator[str]:
    """Yield text and references by turns, beginning and ending with text."""
    before: list[str] = []
    for part in parts(text):
        name = _name(part)
        if name:
            yield "".join(before)
            yield f"{name}@{secrets.version(tenant, name)}"
            before = []
        else:
            before.append(part if isinstance(part, str) else as_text(render(f"${{{part.expression}}}")))
    yield "".join(before)


def _name(part: str | Slot) -> str:
    found = SECRET.fullmatch(part.expression) if isinstance(part, Slot) else None
    return found[1] if found else ""


class Known(NamedTuple):
    """Arguments as the tool gets them, and the values in them that must not be seen anywhere else."""

    arguments: Any
    values: tuple[str, ...] = ()

    def call(self, invoke: Callable[[Any], Any]) -> Any:
        """Make the call. What it returns, or says when it fails, does not hold the values any more."""
        if not self.values:
            return invoke(self.arguments)
        try:
            return _without(invoke(self.arguments), self._forms())
        except StepFailure as failure:
            failure.args = (_hidden_cut(str(failure), self._forms()),)
            raise failure.with_traceback(None) from None  # what it came from may say more, and is logged

    def _forms(self) -> list[str]:
        """Return the values as they may come back, longest first."""
        return sorted({form for value in self.values for form in _forms(value)}, key=len, reverse=True)


def _forms(value: str) -> Iterator[str]:
    """Yield a value as it was, as a line, as a host's name, and each as URLs, JSON and Python write it."""
    for text in (value, " ".join(value.split()), value.strip(), value.lower()):
        if len(text) >= SHORTEST:
            yield from (text, repr(text)[1:-1])
            yield from (way(text, safe="", errors="surrogatepass") for way in (quote, quote_plus))
            yield quote(text, errors="surrogatepass")
            for written in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
                yield from (written, written.replace("/", "\\/"))


def resolved(template: Any, arguments: Any, secrets: Secrets, tenant: str) -> Known:
    """Return rendered arguments with the values of the secrets that ``template`` names.

    Raises PermanentFailure when a secret or its version is gone, PolicyViolation when the arguments name another one.
    """
    if not uses(template):
        return Known(arguments)
    values: dict[str, str] = {}

    def value_of(reference: str) -> str:
        name, _, version = reference.partition("@")
        value = values[reference] = secrets.value(tenant, name, version)
        if len(value) < SHORTEST:
            raise PermanentFailure(f"The secret {name} has fewer than {SHORTEST} characters. Give it a longer value.")
        return value

    filled = _filled(template, arguments, value_of)
    return Known(filled, tuple(values.values()))


def _filled(template: Any, value: Any, value_of: Callable[[str], str]) -> Any:
    if not uses(template):
        return value
    if isinstance(template, dict) and isinstance(value, dict):
        wanted, given = cast("dict[str, Any]", template), cast("dict[str, Any]", value)
        return {key: _filled(wanted.get(key), one, value_of) for key, one in given.items()}
    if isinstance(template, list | tuple) and isinstance(value, list):
        wanted, given = cast("list[Any]", template), cast("list[Any]", value)
        if len(wanted) == len(given):
            return [_filled(each, one, value_of) for each, one in zip(wanted, given, strict=True)]
    if isinstance(template, str) and isinstance(value, dict):
        return _text(template, cast("dict[str, Any]", value).get(REFERENCE), value_of)
    raise PolicyViolation("The arguments do not name the secrets that the definition names there.")


def _text(template: str, referring: Any, value_of: Callable[[str], str]) -> str:
    wanted = [name for name in map(_name, parts(template)) if name]
    given = [str(one) for one in cast("list[Any]", referring)] if isinstance(referring, list) else []
    if [one.partition("@")[0] for one in given[1::2]] != wanted:
        raise PolicyViolation(f"The arguments do not name the secrets {', '.join(wanted)} where the definition does.")
    return "".join(value_of(one) if index % 2 else one for index, one in enumerate(given))


def _without(value: Any, forms: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _hidden(value, forms)
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {_hidden(key, forms): _without(one, forms) for key, one in given.items()}
    return [_without(one, forms) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _hidden(text: str, forms: Sequence[str]) -> str:
    for form in forms:
        text = text.replace(form, REDACTED)
    return text


def _hidden_cut(text: str, forms: Sequence[str]) -> str:
    """Hide also the beginning of a value that is left where a text was cut."""
    *parts, last = _hidden(text, forms).split(CUT)
    return CUT.join((*(_ended(part, forms) for part in parts), last))


def _ended(part: str, forms: Sequence[str]) -> str:
    sizes = ((form, size) for form in forms for size in range(SHORTEST, min(len(form), len(part) + 1)))
    longest = max((size for form, size in sizes if part.endswith(form[:size])), default=0)
    return f"{part[:-longest]}{REDACTED}" if longest else part
