"""Follows a run by its log: events by number, so that nothing is shown twice or missed, whatever the network does."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from scripts.commands.advice import going_on, stuck
from scripts.commands.client import Api, ApiRefused, Unreachable, segment
from scripts.commands.output import COMMAND, Refused, console, print_line
from scripts.commands.story import ASKING, Event, Story, plain
from scripts.commands.tally import Bodies, Tally, bodies_of

RESUMABLE = frozenset({"failed", "cancelled", "timed_out", "stopped"})
"""States in which a run has ended early: it can be resumed."""
TERMINAL = RESUMABLE | {"completed"}
_UNKNOWN = "unknown_outcome"
HUMAN = frozenset({"waiting_for_human", "paused"})
"""States in which nothing happens until a person has acted."""
FAST, SLOW = 0.25, 3.0
"""Seconds between two looks: while something happens, and at most while nothing does."""
PATIENCE = 60.0
"""Seconds for which an API that does not answer is asked again."""


@dataclass(frozen=True)
class Page:
    """What one look at the log found: new events, and the run's state as of the same moment or later."""

    events: list[Event]
    state: str
    last: int


def pages(api: Api, run: str, after: int = 0) -> Iterator[Page]:
    """Yield the log's news for ever, also empty ones; the caller stops. Raises Refused when the API stays away."""
    pause = FAST
    while True:
        page = _patiently(api, run, after)
        yield page
        pause = FAST if page.events else min(pause * 1.3, api.slowest)
        after = page.last
        if len(page.events) < _LIMIT:
            time.sleep(pause)


_LIMIT = 200


def _patiently(api: Api, run: str, after: int) -> Page:
    deadline = time.monotonic() + PATIENCE
    told = False
    while True:
        try:
            answer = api.get(f"/v1/runs/{segment(run)}/events", after=after, limit=_LIMIT)
            return Page(answer["events"], str(answer["state"]), int(answer["next"]))
        except (Unreachable, ApiRefused) as fault:
            lasting = isinstance(fault, ApiRefused) and fault.status < 500  # noqa: PLR2004 - the request's own fault
            if lasting or time.monotonic() > deadline:
                raise
            if not told:
                console(stderr=True).print(f"  [yellow]![/] {plain(fault.what)} Asking again for {PATIENCE:.0f} s ...")
                told = True
            time.sleep(SLOW)


def news(api: Api, story: Story, *, until_human: bool = False) -> Iterator[tuple[Page, list[str]]]:
    """Yield the news of a run's log with their lines, from where its `story` stands.

    Ends after the page on which the run has ended or, with `until_human`, it or a run below it waits for a person.
    Raises Refused when the API stays away, or when no process drives the run.
    """
    still = False
    for page in pages(api, story.run, story.seq):
        story.seq = page.last
        lines = list(filter(None, map(story.line, page.events)))
        before = story.asks
        story.asks = before if page.events else _asking(api, story, ending=story.ending)
        yield (
            page,
            [*lines, *_way_on(api, story, page, story.asks if story.asks != before else "", until_human=until_human)],
        )
        waits = until_human and bool(story.asks or _needy(page.state, ending=story.ending))
        if not page.events and (waits or page.state in TERMINAL):
            return
        # Whoever drove it may have ended it just after this page was read: so the next one decides.
        if still and not page.events:
            raise standing_still(story.run)
        still = api.stands_still(story.run)


def standing_still(run: str) -> Refused:
    """Return what to say of an in-process run that nobody drives."""
    what = f"Run {run} stands still: no process drives it."
    return Refused(what, f"This goes on with it: signalbox runs resume {run}", code="stands_still")


def _needy(found: str, *, ending: bool) -> bool:
    """Tell whether a run in this state waits for a person; one that ends closes its gates by itself."""
    return found in HUMAN and not (ending and found == "waiting_for_human")


def _asking(api: Api, story: Story, *, ending: bool) -> str:
    """Return the run below this one that waits for a person; empty when none does."""
    for child in story.children.values():
        page = _patiently(api, child.run, child.seq)
        child.seq = page.last
        for event in page.events:
            child.line(event)
        over_soon = ending or child.ending
        found = child.run if _needy(page.state, ending=over_soon) else _asking(api, child, ending=over_soon)
        if found:
            return found
    return ""


def _way_on(api: Api, story: Story, page: Page, child: str, *, until_human: bool) -> list[str]:
    """Return what a person can do, where one is needed as of this page: for the run, or for a run below it."""
    if child:
        return [f"  [yellow]●[/] run {child} waits for a person: {COMMAND} runs show {child}"]
    # Who was told what to do when the gate opened is not told again with every reminder and tier.
    asks = [event for event in page.events if event["type"] in ASKING - {"gate_reminded", "gate_escalated"}]
    if not asks or until_human or page.state not in HUMAN:
        return []
    return [f"  [dim]{plain(_told(api, story.run, page.state, asks))}[/]"]


def _told(api: Api, run: str, found: str, asks: Sequence[Event]) -> str:
    """Return what a person can do as the run stands now; where it cannot be looked at, by what the log says."""
    if found == "paused":
        with suppress(Unreachable, ApiRefused):
            return way_on(api.get(f"/v1/runs/{segment(run)}"))
        reason, waiting = _reason(asks)
        return going_on(run, reason, COMMAND, waiting)
    return _elsewhere(run)


def _reason(asks: Sequence[Event]) -> tuple[str | None, Sequence[Mapping[str, Any]]]:
    """Return why a run is paused and what waits, by the last of the events after which a person may have to act."""
    last = next((event for event in reversed(asks) if event["type"].startswith("step_")), None)
    if last is None:
        return None, ()
    data = last["data"]
    waiting = [{"path": last["path"], "short": data}] if "dimension" in data else []
    return str(data.get("reason") or _UNKNOWN), waiting


def stream(api: Api, story: Story, *, until_human: bool = False) -> str:
    """Print the run's events as JSON, one a line, then its state. Returns the state. Raises Refused."""
    page = Page([], "", story.seq)
    for page, _ in news(api, story, until_human=until_human):
        for event in page.events:
            print_line(event)
    print_line({"run": story.run, "state": page.state, "seq": page.last})
    return page.state


def follow(api: Api, story: Story, *, until_human: bool = False) -> str:
    """Show the run's steps as they finish until it ends or, with `until_human`, until it waits for a person.

    Goes on where `story` stands. Returns the state the run is left in. Raises Refused.
    """
    screen, page = console(), Page([], "", story.seq)
    with screen.status("") as status:
        for page, lines in news(api, story, until_human=until_human):
            for line in lines:
                screen.print(f"  {line}", soft_wrap=True)
            status.update(f"[dim]{plain(story.under_way() or page.state)} ...[/]")
    return page.state


def story_of(api: Api, run: str, after: int = 0) -> Story:
    """Return the story of a run from after event number `after`; its definition is read when it has a map."""
    return Story(run, after, tally=Tally(lambda: _bodies(api, run)))


def _bodies(api: Api, run: str) -> Bodies:
    """Return what the maps of the run's definition hold; nothing where it cannot be read: then nothing is counted."""
    try:
        found = api.get(f"/v1/runs/{segment(run)}")
        version = api.get(f"/v1/workflows/{segment(str(found['workflow']))}/versions/{found['version']}")
        return bodies_of(str(version["definition"]))
    except ApiRefused:
        return {}


def way_on(found: Mapping[str, Any]) -> str:
    """Return what a person can do about a run that is paused, or waits for a decision, as it stands."""
    if found["state"] != "paused":
        return _elsewhere(str(found["id"]))
    return going_on(str(found["id"]), found["reason"], COMMAND, stuck(found), found.get("unwinding"))


def _elsewhere(run: str) -> str:
    return f"decide it in another terminal: {COMMAND} approvals show {run} (or approve, reject); Ctrl-C lets it wait"
