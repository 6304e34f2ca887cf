"""What commands print: tables and colours for people, JSON for programs; progress always on stderr."""

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
"""The clone that this command line belongs to."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for programs.")]

WIDE = 160
"""Columns where there is no terminal that says how many it has."""

STYLES = {
    "completed": "green",
    "approved": "green",
    "running": "cyan",
    "retrying": "yellow",
    "waiting_for_human": "yellow",
    "waiting": "yellow",
    "open": "yellow",
    "paused": "yellow",
    "unknown": "red",
    "failed": "red",
    "rejected": "red",
    "timed_out": "red",
    "expired": "red",
    "stopped": "magenta",
    "cancelled": "magenta",
    "skipped": "dim",
    "blocked": "dim",
}
"""The colour of each state."""


FOLDING = frozenset({"SUBJECT", "NOTE", "DATA"})
"""Columns that may take several lines; all others hold names that are to be copied whole."""


class Refused(Exception):
    """A command was refused or failed: what happened, and what to do. ``code`` is stable, for programs."""

    def __init__(self, what: str, remedy: str = "", *, code: str = "refused") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.code = code


def report(refused: Refused, *, as_json: bool) -> None:
    """Tell about a refusal: on stderr for people, as a JSON object on stdout for programs."""
    if as_json:
        print_json({"error": {"code": refused.code, "message": refused.what, "remedy": refused.remedy}})
        return
    screen = console(stderr=True)
    screen.print("[bold red]✗[/] ", end="")
    screen.print(refused.what, markup=False, highlight=False, soft_wrap=True)
    if refused.remedy:
        screen.print(f"  {refused.remedy}", markup=False, highlight=False, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print one JSON value on stdout."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def console(*, stderr: bool = False) -> "Console":
    """Return a console; it leaves colours out when NO_COLOR is set or nobody watches."""
    from rich.console import Console  # noqa: PLC0415 - `--help` and `--json` do without it

    found = Console(stderr=stderr, highlight=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = WIDE  # in a pipe or file nobody is helped by lines that are cut
    return found


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = (), empty: str) -> None:
    """Print a table, or `empty` when there are no rows. Columns named in `right` are set flush right."""
    from rich.table import Table  # noqa: PLC0415 - as above

    found = list(rows)
    if not found:
        console().print(empty, markup=False)
        return
    made = Table(box=None, pad_edge=False, header_style="bold")
    flush_right = set(right)
    for column in columns:
        folds = column in FOLDING
        made.add_column(
            column, justify="right" if column in flush_right else "left", overflow="fold", no_wrap=not folds
        )
    for row in found:
        made.add_row(*row)
    console().print(made)


def pairs(rows: Mapping[str, str]) -> None:
    """Print names with their values, one a line."""
    screen = console()
    width = max(map(len, rows))
    for name, value in rows.items():
        screen.print(f"  [dim]{name:<{width}}[/]  {value}", soft_wrap=True)


def state(name: str) -> str:
    """Return a state in its colour."""
    style = STYLES.get(name)
    return f"[{style}]{name}[/]" if style else name


def seconds(milliseconds: float | None) -> str:
    """Return a duration as people read it."""
    if milliseconds is None:
        return ""
    total = milliseconds / 1000
    if total < 60:  # noqa: PLR2004 - a minute
        return f"{total:.2f} s" if total < 10 else f"{total:.1f} s"  # noqa: PLR2004 - three digits say enough
    minutes, rest = divmod(round(total), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"  # noqa: PLR2004


def money(usd: str | None) -> str:
    """Return an amount of USD, without zeros that say nothing."""
    return "" if usd in (None, "0.00") else f"$ {usd}"


def age(moment: str | None) -> str:
    """Return how long ago an ISO 8601 time was."""
    if not moment:
        return ""
    passed = datetime.now(UTC) - datetime.fromisoformat(moment)
    return f"{seconds(max(0.0, passed.total_seconds()) * 1000)} ago"


class Progress:
    """Phases with their times: a spinner on a terminal, plain lines elsewhere, nothing when quiet.

    They go to stderr unless the command has nothing else to say on stdout.
    """

    def __init__(self, *, quiet: bool = False, stderr: bool = True) -> None:
        self._quiet = quiet
        self._console = console(stderr=stderr)

    @contextmanager
    def phase(self, title: str) -> Generator[Callable[[str], None]]:
        """Show that `title` is going on, then how long it took. Yields what takes its lines of progress."""
        if self._quiet:
            yield _ignore
            return
        begun = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(f"{title} ...") as status:
                yield lambda text: status.update(f"{title} ... [dim]{_short(text)}[/]")
        else:
            self._console.print(f"  {title} ...", markup=False)
            yield _ignore
        self.line(f"[green]✓[/] {title} [dim]({time.monotonic() - begun:.1f} s)[/]")

    def line(self, text: str) -> None:
        """Print a line, in rich's markup."""
        if not self._quiet:
            self._console.print(f"  {text}", soft_wrap=True)


def _ignore(_text: str) -> None:
    pass


def _short(text: str) -> str:
    from rich.markup import escape  # noqa: PLC0415 - as above

    return escape(" ".join(text.split())[:70])


def relative(path: Path) -> str:
    """Return a path as people would type it here."""
    import os  # noqa: PLC0415 - one use

    found = os.path.relpath(path)
    return str(path) if found.startswith("..") else found
