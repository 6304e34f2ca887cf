"""Secrets in a tool's arguments: named in everything that is kept or shown, known only to the call itself.

``${ secrets.token }``, alone or inside text, renders to a *reference*: ``{"$secret": ["Bearer ", "token@v7", ""]}``
holds text and, at odd places, name and version. So the ledger, digests and approvals are about exactly one version,
and hold no value. A reference counts only where the definition has one: what comes from inputs, models or people is
data, whatever it looks like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from shared.definition.expressions import SECRET, Slot, as_text, parts
from shared.errors import PermanentFailure, PolicyViolation
from shared.redaction import SHORTEST, Known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shared.ports import Secrets

REFERENCE = "$secret"


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
