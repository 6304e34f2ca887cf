"""`doctor`: is everything here that Signalbox needs, and what to do where it is not."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import typer

from scripts.commands.output import ROOT, JsonOption, console, hint, print_json

BIN = Path(sys.executable).parent
DISK = 2 * 1024**3
"""Bytes that environment, CDK assets and logs may need."""


@dataclass(frozen=True)
class Check:
    """One check: what was looked at, how it stands, what was found, what to do."""

    name: str
    status: Literal["ok", "warning", "error"]
    found: str
    remedy: str = ""


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command()(doctor)


def doctor(*, as_json: JsonOption = False) -> None:
    """Check this machine and this clone. Exit code 1 when something needed is missing; each fault has a remedy."""
    checks = [found for check in CHECKS for found in check()]
    bad = any(check.status == "error" for check in checks)
    if as_json:
        told = [asdict(check) | {"found": hint(check.found), "remedy": hint(check.remedy)} for check in checks]
        print_json({"healthy": not bad, "checks": told})
    else:
        for check in checks:
            _print(check)
    raise typer.Exit(1 if bad else 0)


def _print(check: Check) -> None:
    mark = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "error": "[red]✗[/]"}[check.status]
    console().print(f"{mark} {check.name:<14} ", end="")
    console().print(hint(check.found), markup=False, soft_wrap=True)
    if check.remedy:
        console().print(f"  {'':<14} {hint(check.remedy)}", markup=False, soft_wrap=True, style="dim")


def python() -> Iterator[Check]:
    """The interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        yield Check("Python", "ok", f"{version} ({sys.executable})")
    else:
        yield Check("Python", "error", version, "Install Python 3.11 to 3.13, then ./scripts/setup --force.")


def environment() -> Iterator[Check]:
    """The environment against the lock files; scripts/setup does nothing when all is as it should be."""
    stamp = ROOT / ".venv" / ".signalbox-setup"
    locks = [ROOT / name for name in ("requirements.lock", "requirements-setup.lock", "package-lock.json")]
    missing = [lock.name for lock in locks if not lock.exists()]
    if missing:
        yield Check("environment", "error", f"{missing[0]} is missing", "Restore it: git checkout -- " + missing[0])
    elif not stamp.exists():
        yield Check("environment", "warning", "not made by ./scripts/setup", "Run ./scripts/setup.")
    elif any(lock.stat().st_mtime > stamp.stat().st_mtime for lock in locks):
        yield Check("environment", "warning", "a lock file is newer than the environment", "Run ./scripts/setup.")
    else:
        yield Check("environment", "ok", "as the lock files say")


def node() -> Iterator[Check]:
    """Node and the CDK's command line."""
    remedy = "Run ./scripts/setup --force."
    yield _version("Node", [str(BIN / "node"), "--version"], remedy)
    cdk = ROOT / "node_modules" / ".bin" / "cdk"
    yield _version("CDK", [str(BIN / "node"), str(cdk), "--version"], remedy)


def _version(name: str, command: list[str], remedy: str) -> Check:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - our own
    except (OSError, subprocess.SubprocessError) as error:
        return Check(name, "error", f"does not run: {error}", remedy)
    return Check(name, "ok", done.stdout.strip())


def disk() -> Iterator[Check]:
    """Room on the disk."""
    free = shutil.disk_usage(ROOT).free
    found = f"{free / 1024**3:.1f} GiB free"
    yield Check("disk", "ok", found) if free >= DISK else Check("disk", "warning", found, "Free 2 GiB.")


def ports() -> Iterator[Check]:
    """Whether this machine gives out ports on its own address."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            yield Check("ports", "ok", "127.0.0.1 gives out free ports")
    except OSError as error:
        yield Check(
            "ports", "error", f"no port on 127.0.0.1: {error}", "Allow programs to listen on the loopback address."
        )


def browser() -> Iterator[Check]:
    """A browser for the browser tests; nothing else needs one."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found:
        yield Check("Chromium", "ok", found)
    else:
        remedy = "Only the browser tests need it. Debian: apt-get install chromium."
        yield Check("Chromium", "warning", "not found: browser tests will be skipped", remedy)


def key() -> Iterator[Check]:
    """Whether models are real or rehearsed."""
    live = bool(os.environ.get("ANTHROPIC_API_KEY"))
    yield Check(
        "models", "ok", "ANTHROPIC_API_KEY is set: `up` calls real ones" if live else "rehearsed, no key is set"
    )


def local_cloud() -> Iterator[Check]:
    """What of the local cloud runs."""
    from scripts.commands.target import FOLDER  # noqa: PLC0415 - with it
    from scripts.local import cloud  # noqa: PLC0415 - keeps `--help` fast

    found = cloud.status(FOLDER)
    if found.healthy:
        yield Check("local cloud", "ok", f"up on {found.running['aws'].url}")
    elif found.running or found.stale:
        yield Check("local cloud", "warning", f"incomplete: {', '.join(found.stale)} gone", "Run `signalbox up`.")
    else:
        yield Check("local cloud", "ok", "not running; `signalbox up` starts it")


def services() -> Iterator[Check]:
    """Services that the deployment in use finds degraded, and those that this machine's own runs do."""
    from scripts.commands.local_runs import LocalRuns, open_workspace, runs_file  # noqa: PLC0415 - keeps `--help` fast
    from scripts.commands.output import Refused  # noqa: PLC0415 - with it
    from scripts.commands.target import target  # noqa: PLC0415 - with it

    try:
        api = target(os.environ.get("SIGNALBOX_URL"), os.environ.get("SIGNALBOX_TOKEN"))
        yield from _degraded("services", api.get("/v1/breakers")["breakers"])
    except Refused:  # no deployment answers: other checks say so
        pass
    if runs_file().is_file():
        with suppress(Refused):  # what reads the file says what is wrong with it
            yield from _degraded("services, in-process", LocalRuns(open_workspace()).get("/v1/breakers")["breakers"])


def _degraded(name: str, found: Sequence[Mapping[str, str]]) -> Iterator[Check]:
    for each in found:
        told = f"{each['service']} is degraded since {each['opened_at']}: its circuit breaker is {each['state']}"
        yield Check(name, "warning", told, "Attempts wait, and go on by themselves once it answers again.")
    if not found:
        yield Check(name, "ok", "no circuit breaker is open")


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    python,
    environment,
    node,
    disk,
    ports,
    browser,
    key,
    local_cloud,
    services,
)
