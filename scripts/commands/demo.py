"""The demo: an invoice, from its text through a person's approval into the ERP, on the deployed app."""

import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scripts.commands import lifecycle, local, mailbox, show
from scripts.commands.client import Api, segment
from scripts.commands.follow import TERMINAL, Story, follow
from scripts.commands.lifecycle import Local
from scripts.commands.mailbox import Mail
from scripts.commands.output import ROOT, Progress, Refused, console, relative, report

INVOICE = ROOT / "workflows" / "samples" / "contoso-en.txt"
"""Its amount is above what passes without a person."""


def demo(
    *,
    approve: Annotated[
        bool, typer.Option("--approve", help="Approve through the page's own form, as a person would.")
    ] = False,
    invoice: Annotated[Path, typer.Option(help="A text file with an invoice.", exists=True, dir_okay=False)] = INVOICE,
) -> None:
    """Take an invoice through the deployed workflow to its approval and on to completion.

    Starts the local cloud if it is not up. Without --approve it waits until you approve in a browser.
    """
    before = bool(lifecycle.running_services())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        _play(invoice, approves=approve)
    except KeyboardInterrupt:
        screen = console()
        screen.print("\nInterrupted.")
        if before:
            screen.print("  The local cloud was up before and stays up; ./scripts/signalbox down stops it.")
        else:
            lifecycle.down(Progress(stderr=False))
        raise typer.Exit(130) from None


def _play(invoice: Path, *, approves: bool) -> None:
    screen = console()
    screen.print("[bold]1  The local cloud[/]")
    found = lifecycle.up(Progress(stderr=False))
    local.describe(local.vars_of(found))

    screen.print(f"\n[bold]2  The invoice[/]  [dim]{relative(invoice)}[/]")
    document = invoice.read_text("utf-8")
    screen.print(
        "\n".join(f"  [dim]│[/] {show.escaped(line)}" for line in document.rstrip().splitlines()), soft_wrap=True
    )

    api = Api(found.api_url, found.token)
    since = time.time()
    run = str(api.post("/v1/workflows/invoice/runs", {"input": {"document": document}})[1]["run"])
    screen.print(f"\n[bold]3  The run[/]  [dim]{run}[/]")
    story = Story()
    state = follow(api, run, story, until_human=True)
    if state == "waiting_for_human":
        _ask(found, mailbox.wait_for(found.mailbox_url, run, since), approves=approves)
        state = follow(api, run, story)
    _end(found, api, run, state)


def _ask(found: Local, mail: Mail, *, approves: bool) -> None:
    screen, initials = console(), _initials(found, mail)
    screen.print(f"\n[bold]4  The decision[/]  [dim]a mail to {show.escaped(mail.to)}[/]")
    screen.print(f"  {show.escaped(' '.join(mail.subject.split()))}", soft_wrap=True)
    screen.print(f"  {mail.link}", soft_wrap=True, markup=False, style="underline")
    if approves:
        mailbox.approve(mail.link, initials)
        screen.print(f"  Opened the page, typed {initials}, pressed Approve.\n")
    else:
        screen.print(
            f"  Open the link in a browser, type [bold]{initials}[/], approve or reject. Ctrl-C ends the demo.\n"
        )


def _initials(found: Local, mail: Mail) -> str:
    """Return what the person types to whom the mail went."""
    people: list[dict[str, Any]] = [person for group in found.approvers.values() for person in group]
    initials = next((str(person["initials"]) for person in people if person["email"] == mail.to), None)
    if initials is None:
        raise Refused(f"Nobody in infra/settings.py has the address {mail.to}.", "Add them to `approvers`.")
    return initials


def _end(found: Local, api: Api, run: str, state: str) -> None:
    screen = console()
    show.ending(api.get(f"/v1/runs/{segment(run)}"))
    if state not in TERMINAL:
        screen.print(f"  A person has to say how it goes on: ./scripts/signalbox runs resume {run}", soft_wrap=True)
    screen.print("\n[bold]What next[/]")
    for what, command in (
        ("everything about the run", f"./scripts/signalbox runs show {run}"),
        ("its log", f"./scripts/signalbox runs events {run}"),
        ("what the ERP has", f"curl {found.erp_url}/documents"),
        ("another invoice", "./scripts/demo --invoice workflows/samples/nordlicht-de.txt"),
        ("the workflow itself", "workflows/invoice.yaml"),
        ("stop everything", "./scripts/signalbox down"),
    ):
        screen.print(f"  {what:<24} [bold]{command}[/]", soft_wrap=True)
    if state != "completed":
        raise typer.Exit(1)


def main() -> None:
    """Run the demo; what goes wrong is told in words."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(demo)
    try:
        app(prog_name="scripts/demo")
    except Refused as refused:
        report(refused, as_json=False)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
