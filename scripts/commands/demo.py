"""The demo: an invoice, from its text through a person's approval into the ERP, on the deployed app."""

import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scripts.commands import lifecycle, local, mailbox, show
from scripts.commands.client import Api, segment
from scripts.commands.follow import follow, story_of
from scripts.commands.lifecycle import Local
from scripts.commands.mailbox import Mail
from scripts.commands.output import COMMAND, ROOT, Progress, Refused, console, here, relative
from scripts.commands.program import start

INVOICE = ROOT / "workflows" / "samples" / "contoso-en.txt"
"""Its amount is above what passes without a person."""
DEMO = here("demo")


def demo(
    *,
    approve: Annotated[
        bool, typer.Option("--approve", help="Approve through the page's own form, as a person would.")
    ] = False,
    invoice: Annotated[
        Path,
        typer.Option(
            help=f"A text file with an invoice, instead of {INVOICE.name}.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = INVOICE,
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
            screen.print(f"  The local cloud was up before and stays up; {COMMAND} down stops it.", soft_wrap=True)
        else:
            lifecycle.down(Progress(stderr=False))
        raise typer.Exit(130) from None


def _play(invoice: Path, *, approves: bool) -> None:
    screen = console()
    screen.print("[bold]1  The local cloud[/]")
    found = lifecycle.up(Progress(stderr=False))
    local.describe(local.vars_of(found))

    screen.print(f"\n[bold]2  The invoice[/]  [dim]{relative(invoice)}[/]")
    try:
        document = invoice.read_text("utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{relative(invoice)} is no text in UTF-8.", "Give a text file.", code="bad_invoice") from None
    screen.print(
        "\n".join(f"  [dim]│[/] {show.escaped(line)}" for line in document.rstrip().splitlines()), soft_wrap=True
    )

    api = Api(found.api_url, found.token)
    since = time.time()
    run = str(api.post("/v1/workflows/invoice/runs", {"input": {"document": document}})[1]["run"])
    screen.print(f"\n[bold]3  The run[/]  [dim]{run}[/]")
    story = story_of(api, run)
    state = follow(api, story, until_human=True)
    if state == "waiting_for_human":
        _ask(found, mailbox.wait_for(found.mailbox_url, run, since), approves=approves)
        state = follow(api, story)
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
    screen.print("\n[bold]What next[/]")
    for what, command in (
        ("everything about the run", f"{COMMAND} runs show {run}"),
        ("its log", f"{COMMAND} runs events {run}"),
        ("what the ERP has", f"curl {found.erp_url}/documents"),
        ("another invoice", f"{DEMO} --invoice {relative(INVOICE.with_name('nordlicht-de.txt'))}"),
        ("the workflow itself", relative(ROOT / "workflows" / "invoice.yaml")),
        ("stop everything", f"{COMMAND} down"),
    ):
        screen.print(f"  {what:<24} [bold]{command}[/]", soft_wrap=True)
    if state != "completed":
        raise typer.Exit(1)


def main() -> None:
    """Run the demo; what goes wrong is told in words."""
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(demo)
    start(app, DEMO)


if __name__ == "__main__":
    main()
