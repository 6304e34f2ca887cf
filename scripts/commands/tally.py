"""Counts the items of maps from a run's log, so that a map is a line an item and not a line a step."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Bodies = Mapping[str, frozenset[str]]
"""The names of the steps inside each map and loop, by its path without numbers: ``each``, ``each/revise``."""
FALLBACK = "/fallback"


def bodies_of(definition: str) -> Bodies:
    """Return the bodies of a workflow's definition (YAML); templates of fallbacks are not among their steps."""
    import yaml  # noqa: PLC0415 - only where a run has a map

    read: Any = yaml.load(definition, Loader=yaml.BaseLoader)  # noqa: S506 - all is text: `yes` is a step's name
    return dict(_bodies(read["steps"], ""))


def _bodies(steps: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, frozenset[str]]]:
    for name, step in steps.items():
        inner: Mapping[str, Any] = step.get("steps") or {}
        if inner:
            yield f"{prefix}{name}", frozenset(inner) - {each.get("fallback") for each in inner.values()}
            yield from _bodies(inner, f"{prefix}{name}/")


@dataclass
class Item:
    """One item of a map: when it began (ISO 8601), the steps that have settled, what they used (USD)."""

    path: str
    begun: str
    settled: set[str] = field(default_factory=set[str])
    tokens: int = 0
    usd: Decimal = Decimal(0)
    over: bool = False

    @property
    def used(self) -> Mapping[str, Any]:
        """What it has used, as events say it."""
        return {"tokens": self.tokens, "usd": f"{self.usd:f}" if self.usd else None}


@dataclass
class Tally:
    """The maps of a run. ``bodies`` is asked once, when the first one is entered; without an answer none counts."""

    bodies: Callable[[], Bodies] = dict
    _known: Bodies | None = None
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _items: dict[str, Item] = field(default_factory=dict[str, Item])
    _parts: dict[str, int] = field(default_factory=dict[str, int])

    def enter(self, path: str, count: int) -> None:
        """Note that a map begins."""
        self._known = self.bodies() if self._known is None else self._known
        if _plain(path) in self._known:
            self._counts[path] = count

    def item(self, path: str, at: str) -> Item | None:
        """Return the item of the outermost map that a step instance stands in; None = it stands in none."""
        for container, item in _places(path):
            if container in self._counts:
                return self._items.setdefault(item, Item(item, at))
        return None

    def settle(self, item: Item, path: str, used: Mapping[str, Any]) -> bool:
        """Note that a step of an item has settled. True = the item is over, by this."""
        item.tokens += int(used.get("tokens") or 0)
        item.usd += Decimal(str(used.get("usd") or 0))
        item.settled.add(path.removesuffix(FALLBACK).removeprefix(f"{item.path}/"))
        wanted = (self._known or {})[_plain(item.path)]
        return wanted <= item.settled and self.end(item)

    def end(self, item: Item) -> bool:
        """Note that an item is over. False = it was before."""
        before, item.over = item.over, True
        return not before

    def part(self, path: str) -> None:
        """Note that a part of a map, a child run with a range of its items, is over."""
        container, _, numbers = path.removesuffix("]").rpartition("[")
        first, _, last = numbers.partition("-")
        if last and container in self._counts:
            self._parts[path] = int(last) - int(first) + 1

    def progress(self, container: str) -> str:
        """Return how far a map is; empty where that is not known."""
        if container not in self._counts:
            return ""
        over = sum(item.over and item.path.rpartition("[")[0] == container for item in self._items.values())
        over += sum(count for path, count in self._parts.items() if path.rpartition("[")[0] == container)
        return f"{over}/{self._counts[container]} items"


def _places(path: str) -> Iterator[tuple[str, str]]:
    """Yield the containers around a path, outermost first, each with the item that the path stands in.

    A part (``each[0-99]``) is no item: it tells of itself when it is over.
    """
    parts = path.split("/")
    for number, part in enumerate(parts, 1):
        if part.endswith("]") and "-" not in part:
            item = "/".join(parts[:number])
            yield item.rpartition("[")[0], item


def _plain(path: str) -> str:
    return "/".join(part.partition("[")[0] for part in path.split("/"))
