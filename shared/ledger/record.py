"""What all records are: frozen data with a revision, copied, written down and revived fast."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

from shared.frozen import frozen_record


@frozen_record
class Record:
    """What all records share: the revision that conditional writes compare. 0 = not stored yet.

    Records keep their fields in a dict, without slots: ``replace`` then copies them all at once. Fields at their
    defaults need not stand in it, since the class has them (``lean``): most are, most of the time.
    """

    rev: int = 0
    NESTED: ClassVar[dict[str, type]] = {}

    @property
    def sk(self) -> str:
        """The sort key inside the run's partition."""
        raise NotImplementedError

    def to_item(self) -> dict[str, Any]:
        """Return plain data without empty fields."""
        whole = {**_defaults(type(self)), **self.__dict__}
        item = {name: value for name, value in whole.items() if value is not None}
        for name in self.NESTED.keys() & item.keys():
            item[name] = _plain(item[name])
        return item

    def onto(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored item with this record in it, and whatever a newer release has written there besides."""
        own = _defaults(type(self))
        return {name: value for name, value in item.items() if name not in own} | self.to_item()

    def told(self) -> dict[str, Any]:
        """Return as little as ``from_item`` needs: the fields that are not at their defaults, nested data as it is.

        For stores where nobody looks at an item's single fields.
        """
        defaults = _defaults(self.__class__)
        return {name: value for name, value in self.__dict__.items() if value is not defaults[name]}

    def brief(self) -> dict[str, Any]:
        """Return plain data without anything at its default: as ``told``, for stores that hold nothing but plain data.

        Half of a step's fields are. Each costs room, and time wherever the item is written, sent, checked and read.
        """
        item = self.told()
        for name in self.NESTED.keys() & item.keys():
            item[name] = _brief(item[name])
        return item

    @classmethod
    def from_item(cls, item: dict[str, Any]) -> Self:
        """Rebuild the record. Fields that a newer release wrote are left out."""
        made = _new(cls)
        made.__dict__ = known = dict(_told(cls, item))
        return made if _without_default(cls) <= known.keys() else lean(cls(**known))


R = TypeVar("R", bound=Record)
_new = object.__new__


def replace(record: R, **changes: Any) -> R:
    """Return the record with ``changes``, as ``dataclasses.replace`` does, in a tenth of the time.

    Every step makes a dozen of these. Raises TypeError for a field that the record does not have.
    """
    known, kind = record.__dict__, record.__class__
    changed = known | changes
    if len(changed) != len(known):
        _check(kind, changes)
    made = _new(kind)
    made.__dict__ = changed
    return made


def lean(record: R) -> R:
    """Return the record without the fields that are at their defaults: less to copy and to look through."""
    made = _new(record.__class__)
    made.__dict__ = record.told()
    return made


def _told(kind: type[Record], item: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an item that are not at their defaults: those that ``told`` would return."""
    defaults, nested = _defaults(kind), kind.NESTED
    for name, given in item.items():
        if name in defaults:
            value: Any = tuple(given) if type(given) is list else given  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            value = nested[name](**value) if name in nested and value is not None else value
            if value is not defaults[name]:
                yield name, value


def _check(kind: type, changes: dict[str, Any]) -> None:
    unknown = changes.keys() - _defaults(kind).keys()
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


@cache
def _defaults(kind: type) -> dict[str, Any]:
    return {one.name: one.default for one in fields(kind)}


@cache
def _without_default(kind: type) -> frozenset[str]:
    return frozenset(name for name, default in _defaults(kind).items() if default is MISSING)


@cache
def _reader(kind: type) -> tuple[tuple[str, ...], attrgetter[tuple[Any, ...]]]:
    return _names(kind), attrgetter(*_names(kind))


def _plain(value: object) -> dict[str, Any]:
    """Return a nested value as plain data; its own fields are plain."""
    names, read = _reader(type(value))
    return dict(zip(names, read(value), strict=True))


def _brief(value: object) -> dict[str, Any]:
    """Return a nested value as plain data without the fields at their defaults."""
    defaults = _defaults(type(value))
    return {name: each for name, each in _plain(value).items() if each is not defaults[name]}
