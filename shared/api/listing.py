"""Lists of runs and approvals from the runs table's indexes. They follow the runs within moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from shared.ids import ulid_time
from shared.ledger.records import Dead, Gate, Head, Run, RunState, dead_letters, run_partition
from shared.ports import Key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shared.ports import Item, Store

_PAGE = 100
_MOST_PAGES = 20
"""How many pages of an index are searched for runs of one workflow in one state before the caller asks again."""


def list_runs(
    store: Store, tenant: str, workflow: str | None, state: str | None, limit: int, before: str | None
) -> tuple[list[Run], bool]:
    """Return the newest runs older than run ``before``, and whether there may be more."""
    if workflow is not None:
        source = _walk(store, "by_workflow", f"TENANT#{tenant}#WORKFLOW#{workflow}", before)
        return _take((run for run in source if state in {None, run.state}), limit)
    if state is not None:
        return _take(_walk(store, "by_state", _state(tenant, state), before), limit)
    return _all_states(store, tenant, limit, before)


def _state(tenant: str, state: str) -> str:
    return f"TENANT#{tenant}#STATE#{state}"


def _all_states(store: Store, tenant: str, limit: int, before: str | None) -> tuple[list[Run], bool]:
    """Merge the newest of every state. A run that changes its state meanwhile may be met twice: its id is kept once."""
    found: dict[str, Run] = {}
    for state in get_args(RunState):
        runs, _ = _take(_walk(store, "by_state", _state(tenant, state), before), limit + 1)
        found.update((run.id, run) for run in runs)
    return _take(iter(sorted(found.values(), key=_age)), limit)


def _age(run: Run) -> tuple[int, str]:
    return -run.created, run.id


def _take(runs: Iterator[Run], limit: int) -> tuple[list[Run], bool]:
    taken: list[Run] = []
    for run in runs:
        if len(taken) == limit:
            return taken, True
        taken.append(run)
    return taken, False


def _walk(store: Store, name: str, value: str, before: str | None) -> Iterator[Run]:
    """Yield an index's runs, newest first, after ``before``; runs of one millisecond are told apart by their ids."""
    edge, passed = (ulid_time(before) + 1 if before else 0), set[str]()
    for _ in range(_MOST_PAGES):
        items = store.index(name, value, limit=_PAGE, before=str(edge) if edge else "")
        runs = sorted((Run.from_item(item) for item in items), key=_age)
        fresh = [run for run in runs if run.id not in passed]
        yield from (run for run in fresh if before is None or _age(run) > (-ulid_time(before), before))
        if len(items) < _PAGE:
            return
        passed.update(run.id for run in fresh)
        # Read the last millisecond again: more runs than fitted may share it.
        edge = runs[-1].created + (1 if fresh else 0)


def pending(store: Store, tenant: str, limit: int) -> list[tuple[Run, Gate]]:
    """Return the tenant's open requests for decisions with their runs, newest first."""
    items = store.index("pending", f"TENANT#{tenant}", limit=limit)
    runs = _runs_of(store, tenant, {_run_id(item) for item in items})
    pairs = ((runs.get(_run_id(item)), Gate.from_item(item)) for item in items)
    return [(run, gate) for run, gate in pairs if run is not None and gate.status == "open"]


def dead(store: Store, tenant: str, workflow: str | None, limit: int) -> list[tuple[str, Dead]]:
    """Return the tenant's newest dead letters, each with its run's id; of one workflow, if that is named.

    Those of one workflow are searched among the newest two thousand.
    """
    items = store.index("pending", dead_letters(tenant), limit=_PAGE * _MOST_PAGES if workflow else limit)
    found = [(_run_id(item), Dead.from_item(item)) for item in items]
    return [(run, letter) for run, letter in found if workflow in {None, letter.workflow}][:limit]


def topmost(store: Store, tenant: str, ids: Iterable[str]) -> dict[str, tuple[str, RunState]]:
    """Return, by run, the run above all others that it is a part or a child of, and how that one stands now."""
    found, above = dict[str, tuple[str, RunState]](), {each: each for each in ids}
    while above:
        keys = [Key(run_partition(tenant, each), sk) for each in set(above.values()) for sk in ("RUN", "HEAD")]
        items = store.read(keys)
        higher = dict[str, str]()
        for run, at in above.items():
            facts, head = (items.get(Key(run_partition(tenant, at), sk)) for sk in ("RUN", "HEAD"))
            if facts and facts.get("parent"):
                higher[run] = str(facts["parent"]).partition("|")[0]
            elif head:
                found[run] = (at, Head.from_item(head).state)
        above = higher
    return found


def _run_id(item: Item) -> str:
    return str(item["pk"]).rsplit("#", 1)[-1]


def _runs_of(store: Store, tenant: str, ids: Iterable[str]) -> dict[str, Run]:
    keys = [Key(run_partition(tenant, each), "RUN") for each in ids]
    found = (Run.from_item(item) for item in store.read(keys).values())
    return {run.id: run for run in found}
