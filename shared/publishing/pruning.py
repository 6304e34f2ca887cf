"""Pruning: versions that no run needs any more lose their place in Step Functions; what they were stays readable.

A version is needed while it is the latest of a workflow that is still deployed, while an open run (a stopped one is
open) is pinned to it, and while a needed version starts it as a sub-workflow by its number. One that is not is marked
first, and pruned when it has stayed so for a week: whoever was about to start it by its number has done so by then. A
machine whose last version is pruned is deleted with it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, cast

from shared.errors import StoreConflict
from shared.ledger.keys import LATEST, version_key, workflow_partition
from shared.ports import Write
from shared.runtime.mending import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from shared.ports import Item, Store
    from shared.runtime.mending import What

GRACE = 7 * 24 * 3600 * 1000
"""How long (ms) a version stays after it was last needed."""
Versions = dict[str, "Item"]
"""Versions by their names, like ``invoice#3``."""


class VersionedMachines(Protocol):
    """State machines, as far as pruning needs them."""

    def forget(self, version_arn: str) -> None:
        """Delete a version; executions that run on it go on. Deleting it again is harmless."""
        ...

    def remove(self, machine_arn: str) -> None:
        """Delete a machine, which ends its executions. Deleting it again is harmless."""
        ...


def prune(store: Store, machines: VersionedMachines, named: Collection[str], now: int) -> list[Finding]:
    """Mark or prune what is not needed; ``store`` is the definitions table, ``named`` are versions that runs need.

    Returns what was done; a version or machine that resists is among it, and is tried again the next time.
    """
    latest, versions = _published(store)
    standing = {name: item for name, item in versions.items() if not item.get("pruned")}
    needed = _with_pins({*latest, *named}, standing)
    found = [one for name, item in standing.items() for one in _judged(store, name, item, needed, now)]
    return [*found, *_forgotten(store, machines, now), *_unused(store, machines, now)]


def _published(store: Store) -> tuple[set[str], Versions]:
    """Return the names of the versions that new runs take, and all versions whose machine has not been deleted."""
    latest, versions = set[str](), Versions()
    for pointer in store.query(LATEST, "NAME#"):
        if not pointer.get("retired"):
            latest.add(_name(pointer))
        items = store.query(workflow_partition(pointer["workflow"]), "VERSION#")
        versions.update((_name(item), item) for item in items if not item.get("removed"))
    return latest, versions


def _name(item: Mapping[str, Any]) -> str:
    return f"{item['workflow']}#{item['version']}"


def _with_pins(needed: set[str], versions: Versions) -> set[str]:
    """Return the needed versions with those that they start by their numbers."""
    found, queue = set[str](), list(needed)
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += _pins(json.loads(versions[name]["manifest"])) if name in versions else ()
    return found


def _pins(value: Any) -> Iterator[str]:
    """Yield every version that a sub-workflow anywhere in a manifest starts by its number."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        if isinstance(found.get("workflow"), str) and found.get("version"):
            yield _name(found)
        value = list(found.values())
    if isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _pins(inner)


def _judged(store: Store, name: str, item: Item, needed: set[str], now: int) -> Iterator[Finding]:
    """Write down what a version is from now on. It is deleted afterwards, so that nobody takes one that is gone."""
    retired = item.get("retired")
    if name in needed and retired:
        yield from _marked(store, name, item, {"retired": None})
    elif name not in needed and not retired:
        marked = Finding("", name, "version_unused", "marked", f"it is pruned after {GRACE // 86_400_000} days")
        yield from _marked(store, name, item, {"retired": now}, marked)
    elif name not in needed and now - int(retired or now) >= GRACE:
        yield from _marked(store, name, item, {"pruned": now}, Finding("", name, "version_unused", "pruned"))


def _forgotten(store: Store, machines: VersionedMachines, now: int) -> Iterator[Finding]:
    """Delete what was pruned, now or earlier, from Step Functions."""
    for name, item in _published(store)[1].items():
        if item.get("pruned") and not item.get("forgotten"):
            try:
                machines.forget(str(item["version_arn"]))
            except Exception as error:  # noqa: BLE001 - the other versions must not wait for this one
                yield _left("version_unused", name, error)
            else:
                yield from _marked(store, name, item, {"forgotten": now})


def _unused(store: Store, machines: VersionedMachines, now: int) -> Iterator[Finding]:
    """Delete the machines whose last version is gone."""
    versions = _published(store)[1]
    used = {item["machine_arn"] for item in versions.values() if not item.get("forgotten")}
    for machine in sorted({item["machine_arn"] for item in versions.values()} - used):
        try:
            machines.remove(machine)
        except Exception as error:  # noqa: BLE001 - the other machines must not wait for this one
            yield _left("machine_unused", machine, error)
        else:
            yield Finding("", machine, "machine_unused", "deleted")
            mine = {name: item for name, item in versions.items() if item["machine_arn"] == machine}
            yield from (one for name, item in mine.items() for one in _marked(store, name, item, {"removed": now}))


def _left(what: What, name: str, error: Exception) -> Finding:
    return Finding("", name, what, "left", f"{type(error).__name__}: {error}"[:300])


def _marked(
    store: Store, name: str, item: Item, marks: Mapping[str, int | None], found: Finding | None = None
) -> Iterator[Finding]:
    """Mark a version and yield ``found``; what others write meanwhile, a deployment for one, comes first."""
    try:
        _mark(store, item, **marks)
    except StoreConflict as conflict:
        yield _left("version_unused", name, conflict)
    else:
        yield from (found,) if found else ()


def _mark(store: Store, item: Item, **marks: int | None) -> None:
    marked = {name: value for name, value in {**item, **marks}.items() if value is not None}
    store.commit([Write(version_key(item["workflow"], item["version"]), marked, item["rev"])])
