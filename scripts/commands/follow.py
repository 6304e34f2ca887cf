"""Follows a run by its log: events by number, so that nothing is shown twice or missed, whatever the network does."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.commands.client import Api, ApiRefused, Unreachable, segment
from scripts.commands.output import COMMAND, console, print_line
from scripts.commands.story import ASKING, Event, Story, plain
from scripts.commands.tally import Bodies, Tally, bodies_of

TERMINAL = frozenset({"completed", "failed", "cancelled", "timed_out", "stopped"})
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


def news(api: Api, run: str, after: int = 0, *, until_human: bool = False) -> Iterator[Page]:
    """Yield the log's news until the run has ended or, with `until_human`, waits for a person; that page is the last.

    Raises Refused when the API stays away.
    """
    for page in pages(api, run, after):
        yield page
        if not page.events and over(page.state, until_human=until_human):
            return


def stream(api: Api, run: str, after: int = 0, *, until_human: bool = False) -> str:
    """Print the run's events as JSON, one a line, then its state. Returns the state. Raises Refused."""
    page = Page([], "", after)
    for page in news(api, run, after, until_human=until_human):
        for event in page.events:
            print_line(event)
    print_line({"run": run, "state": page.state, "seq": page.last})
    return page.state


def follow(api: Api, run: str, story: Story, *, until_human: bool = False) -> str:
    """Show the run's steps as they finish until it ends or, with `until_human`, until it waits for a person.

    Goes on where `story` stands. Returns the state the run is left in. Raises Refused.
    """
    screen, page = console(), Page([], "", story.seq)
    with screen.status("") as status:
        for page in news(api, run, story.seq, until_human=until_human):
            story.seq = page.last
            for line in filter(None, map(story.line, page.events)):
                screen.print(f"  {line}", soft_wrap=True)
            status.update(f"[dim]{plain(story.under_way() or page.state)} ...[/]")
            asks = any(event["type"] in ASKING for event in page.events)
            if asks and page.state in HUMAN and not until_human:
                screen.print(f"    [dim]{way_on(run, page.state)}[/]", soft_wrap=True)
    return page.state


def story_of(api: Api, run: str, after: int = 0) -> Story:
    """Return the story of a run from after event number `after`; its definition is read when it has a map."""
    return Story(seq=after, tally=Tally(lambda: _bodies(api, run)))


def _bodies(api: Api, run: str) -> Bodies:
    """Return what the maps of the run's definition hold; nothing where it cannot be read: then nothing is counted."""
    try:
        found = api.get(f"/v1/runs/{segment(run)}")
        version = api.get(f"/v1/workflows/{segment(str(found['workflow']))}/versions/{found['version']}")
        return bodies_of(str(version["definition"]))
    except ApiRefused:
        return {}


def way_on(run: str, found: str) -> str:
    """Return what a person can do about a run in a state of HUMAN."""
    if found == "paused":
        return f"say how it goes on: {COMMAND} runs resume {run} --action retry (or skip, accept, fail)"
    return f"decide it in another terminal: {COMMAND} approvals show {run} (or approve, reject); Ctrl-C lets it wait"


def over(found: str, *, until_human: bool) -> bool:
    """Tell whether there is nothing left to wait for."""
    return found in TERMINAL or (until_human and found in HUMAN)
