"""Whether values of one JSON Schema can stand where another is expected: a careful comparison that never guesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from shared.definition.types import resolve, variants

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEEPEST = 8


def misfits(source: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[str]:
    """Yield why values of ``source`` cannot always be used as ``target``. What cannot be told is not reported."""
    yield from _compare((source, source), (target, target), "", 0)


def kinds(schema: Any, root: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the JSON types that fit a schema; None where that cannot be told."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict):
            return None
        schema = cast("dict[str, Any]", schema)
        if "$ref" not in schema:
            break
        schema = resolve(schema, root)
    known = cast("dict[str, Any]", schema)
    given = known.get("type")
    if given is not None:
        return frozenset([given] if isinstance(given, str) else cast("list[str]", given))
    parts = [kinds(one, root) for one in variants(known)]
    if not parts or any(part is None for part in parts):
        return None
    return frozenset(kind for part in parts for kind in part or ())


def _compare(source: tuple[Any, Any], target: tuple[Any, Any], where: str, depth: int) -> Iterator[str]:
    have, want = kinds(*source), kinds(*target)
    if have is None or want is None or depth > _DEEPEST:
        return
    extra = {kind for kind in have if kind not in want and not (kind == "integer" and "number" in want)}
    if extra:
        yield f"{_place(where)}{_several(have)} is given where {_several(want)} is expected"
    elif _is_only(have, "object") and "object" in want:
        yield from _compare_objects(source, target, where, depth)
    elif _is_only(have, "array") and "array" in want:
        items = [(_plain(*side).get("items", {}), side[1]) for side in (source, target)]
        yield from _compare(items[0], items[1], f"{where}[]", depth + 1)


def _compare_objects(source: tuple[Any, Any], target: tuple[Any, Any], where: str, depth: int) -> Iterator[str]:
    have, want = _plain(*source), _plain(*target)
    given: dict[str, Any] = have.get("properties", {})
    wanted: dict[str, Any] = want.get("properties", {})
    closed = bool(given) and have.get("additionalProperties") in (None, False)
    for name in want.get("required", []):
        if name not in given and closed:
            yield f"{_place(where)}`{name}` is missing"
        elif name in given and name not in have.get("required", []):
            yield f"{_place(where)}`{name}` may be missing"
    for name in given.keys() & wanted.keys():
        yield from _compare((given[name], source[1]), (wanted[name], target[1]), f"{where}.{name}", depth + 1)


def _plain(schema: Any, root: Any) -> dict[str, Any]:
    """Follow references and the one alternative that is not null."""
    for _ in range(_DEEPEST):
        if "$ref" in schema:
            schema = resolve(schema, root) or {}
        elif len(rest := [one for one in variants(schema) if one != {"type": "null"}]) == 1:
            schema = rest[0]
    return cast("dict[str, Any]", schema)


def _is_only(found: frozenset[str], kind: str) -> bool:
    return len(found) == 1 and kind in found


def _place(where: str) -> str:
    return f"`{where.lstrip('.')}`: " if where else ""


def _several(found: frozenset[str]) -> str:
    return " or ".join(sorted(found))
