"""What commands print: tables and colours for people, JSON for programs; progress always on stderr."""

import json
import os
import re
import shlex
import shutil
import sys
import time
from collections import deque
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


def here(script: str) -> str:
    """Return what a user types in this folder to start one of our scripts."""
    found = shutil.which(script)
    if found and Path(found).resolve().is_relative_to(ROOT):
        return script
    path = os.path.relpath(ROOT / "scripts" / script)
    return shlex.quote(str(ROOT / "scripts" / script) if path.startswith("..") else f".{os.sep}{path}")


def version() -> str:
    """Return the version of this clone, from where it stands: pyproject.toml."""
    import tomllib  # noqa: PLC0415 - one use

    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])


COMMAND = here("signalbox")
"""What starts this command line from where the user is; what is printed can be copied and runs."""
_MENTIONED = re.compile(r"(?<![\w./-])signalbox(?= [a-z-])")


def hint(text: str) -> str:
    """Return `text` with every command `signalbox ...` in it as the user has to type it."""
    return _MENTIONED.sub(lambda _: COMMAND, text)


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


FOLDING = {"SUBJECT": 24, "NOTE": 16}
"""Columns that may take several lines, with their least width; all others hold what is to be copied whole."""


class Refused(Exception):
    """A command was refused or failed: what happened, and what to do. ``code`` is stable, for programs."""

    def __init__(self, what: str, remedy: str = "", *, code: str = "refused") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.code = code


def report(refused: Refused, *, as_json: bool) -> None:
    """Tell about a refusal: on stderr for people, as a JSON object on stdout for programs."""
    what, remedy = hint(refused.what), hint(refused.remedy)
    if as_json:
        show = print_line if _LINES else print_json
        show({"error": {"code": refused.code, "message": what, "remedy": remedy}})
        return
    screen = console(stderr=True)
    screen.print("[bold red]✗[/] ", end="")
    screen.print(what, markup=False, highlight=False, soft_wrap=True)
    if remedy:
        screen.print(f"  {remedy}", markup=False, highlight=False, soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """Return so many of something: 1 step, 2 steps."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_json(data: Any) -> None:
    """Print one JSON value on stdout."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


_LINES: "deque[Any]" = deque(maxlen=1)
"""The last line of JSON, once this process has printed any."""


def print_line(data: Any) -> None:
    """Print one JSON value as one line on stdout, at once; a refusal that follows is a line, too."""
    _LINES.append(data)
    print(json.dumps(data, ensure_ascii=False, default=str), flush=True)


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
    from rich.text import Text  # noqa: PLC0415 - as above

    found = list(rows)
    if not found:
        console().print(empty, markup=False)
        return
    made = Table(box=None, pad_edge=False, header_style="bold")
    widths = [max(Text.from_markup(cell).cell_len for cell in cells) for cells in zip(columns, *found, strict=True)]
    screen = console()
    # On a terminal too narrow for that, a row is one line that goes on in the next, rather than lose what it says.
    folds = sum(min(width, FOLDING.get(name, width)) + 2 for name, width in zip(columns, widths, strict=True))
    if folds > screen.width:
        screen.width = sum(width + 2 for width in widths)
    flush_right = set(right)
    for name, width in zip(columns, widths, strict=True):
        justify = "right" if name in flush_right else "left"
        least = min(width, FOLDING.get(name, width))
        made.add_column(name, justify=justify, overflow="fold", no_wrap=name not in FOLDING, min_width=least)
    for row in found:
        made.add_row(*row)
    screen.print(made)


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
    passed = max(0, round((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))
    size, unit = next(((size, unit) for size, unit in _UNITS if passed >= 2 * size), (1, "s"))
    return f"{passed // size} {unit} ago"


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Units of an age: it is counted in the largest of which two have passed."""


def standing(found: Mapping[str, Any], escaped: Callable[[object], str]) -> str:
    """Return a run's state, with the reason it is in it, and how it is ending where it still waits for somebody."""
    ending = f", it ends as {found['unwinding']}" if found.get("unwinding") else ""
    return _standing(found, escaped) + ending


def _standing(found: Mapping[str, Any], escaped: Callable[[object], str]) -> str:
    name, reason = str(found["state"]), str(found.get("reason") or "")
    if reason.startswith(f"{name} "):  # "cancelled by ann@example.com"
        who, _, why = reason.removeprefix(name).partition(": ")
        return state(name) + escaped(f"{who} ({why})" if why else who)
    return f"{state(name)} ({escaped(REASONS.get(reason, reason))})" if reason else state(name)


REASONS = {
    "step_error": "a step failed",
    "budget_exceeded": "the budget does not allow more",
    "unknown_outcome": "nobody knows whether a call took effect",
}
"""Words for the reasons that are codes."""


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
    found = os.path.relpath(path)
    return str(path) if found.startswith("..") else found
