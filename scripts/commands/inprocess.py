"""`run FILE`: a workflow file in this very process, with no cloud at all; kill it, run it again, and it goes on."""

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scripts.commands.attend import attend
from scripts.commands.earlier import Earlier, earlier_run
from scripts.commands.farside import Notes, keepable, of_now, of_run, open_models, open_settings
from scripts.commands.follow import TERMINAL, follow, story_of, stream
from scripts.commands.local_runs import LocalRuns, open_workspace, refused_here, runs_file, signature
from scripts.commands.output import COMMAND, Refused, console, hint, print_line, relative
from scripts.commands.own_aws import client
from scripts.commands.prompt import ask
from scripts.commands.show import escaped
from scripts.commands.toolprint import tools_print_to_stderr
from scripts.commands.toolsettings import tool_settings
from scripts.commands.triggers import rehearsed
from scripts.commands.versions import compiled, publish

if TYPE_CHECKING:
    from scripts.local.web import Service
    from shared.inprocess.engine import InProcess
    from shared.inprocess.farside import FarSide
    from shared.inprocess.workspace import Workspace
    from shared.manifest import Manifest
    from shared.ports import Tools
    from shared.runtime.host import Published
    from shared.runtime.runs import StartRequest

_SPARE_WORKERS = 2


@dataclass(frozen=True)
class Options:
    """How a file is run. ``settings`` are the tools' (`--set-tool`); ``by`` signs decisions.

    ``audit`` = limits refuse nothing, what they would have refused is recorded. ``trigger`` is the one that starts it.
    """

    settings: Sequence[str] = ()
    models_url: str | None = None
    by: str = ""
    new: bool = False
    key: str | None = None
    until_human: bool = False
    as_json: bool = False
    audit: bool = False
    trigger: str = ""


@dataclass
class Session:
    """This process's engine with everything around it; ``side`` is where calls go, ``kept`` where they went so far.

    ``told`` is said to people, ``notes`` also to programs.
    """

    workspace: "Workspace"
    engine: "InProcess"
    api: LocalRuns
    side: "FarSide"
    kept: "FarSide | None"
    notes: Notes
    told: Notes

    def drive(self, run: str) -> None:
        """Drive a run. Raises Refused when another process does."""
        if not self.workspace.locks.acquire(run):
            what = f"Another process drives run {run}."
            raise Refused(what, f"Follow it from here: signalbox runs watch {run}", code="driven_elsewhere")
        if self.kept and keepable(self.side) != self.kept:
            self.workspace.keep_side(run, keepable(self.side))
        self.engine.host(run)


def run_file(file: Path, data: Any, options: Options) -> None:
    """Run a workflow file until it ends. Leaves by typer.Exit with the same codes as `runs watch`. Raises Refused.

    ``data`` is the run's input, or what happens for its trigger.
    """
    settings = tool_settings(options.settings)
    made = compiled(file, settings)
    with closing(open_workspace()) as workspace:
        published = publish(workspace, made, file, settings)
        request = _request(published, data, options)
        earlier = earlier_run(workspace, published, request, new=options.new)
        with session(workspace, file, published.manifest, earlier.run, options) as opened:
            opened.notes.update(earlier.notes)
            run, resumed = _begin(opened, published, request, earlier)
            _tell(opened, run, file, options, resumed=resumed)
            _finish(opened, run, options)


def go_on(api: LocalRuns, run: str, *, as_json: bool) -> None:
    """Drive a run that no process drives, until it ends or needs a person. Leaves by typer.Exit."""
    file = Path(api.workspace.file_of(run))
    if not file.is_file():
        what = f"The file of run {run} is gone, and with it its tools: {relative(file)}."
        raise Refused(what, "Put it back, or run it where it is now: that goes on with this run.", code="no_file")
    options = Options(until_human=not sys.stdin.isatty(), as_json=as_json)
    facts = api.workspace.facts(run)
    manifest = api.workspace.definitions.manifest(facts.workflow, facts.version)
    with closing(api.workspace), session(api.workspace, file, manifest, run, options) as opened:
        opened.drive(run)
        if not as_json:
            console().print(f"No process drove run [bold]{run}[/]; this one does now.")
            _say(opened)
        _finish(opened, run, options)


@contextmanager
def session(
    workspace: "Workspace", file: Path, manifest: "Manifest", run: str | None, options: Options
) -> Generator[Session]:
    """Open the models and tools of a file, and an engine that drives its runs. Raises Refused.

    ``run`` is the one that goes on: its calls go where they went so far.
    """
    from shared.tools.registry import ToolError  # noqa: PLC0415 - keeps `--help` fast

    services, told = list["Service"](), Notes()
    kept = workspace.side(run) if run else None
    side, notes = of_run(run, kept, options.settings, options.models_url) if run and kept else (_now(file, options), {})
    side = replace(side, file=str(file.resolve()))
    engine = workspace.engine(manifest.max_parallel + _SPARE_WORKERS)
    try:
        models = open_models(side, file, services, told)
        tools = _tools(file, open_settings(side, services, told))
        engine.open(workspace.handlers(engine, models, tools))
        api = LocalRuns(workspace, engine, options.by, lambda: _check(engine))
        with tools_print_to_stderr():
            yield Session(workspace, engine, api, side, kept, notes, told)
    except ToolError as error:
        raise Refused(str(error), "Mend the tool.", code="tools") from None
    finally:
        engine.close()
        for service in services:
            service.shutdown()


def _now(file: Path, options: Options) -> "FarSide":
    return of_now(file, options.settings, options.models_url)


def _tools(file: Path, settings: Mapping[str, str]) -> "Tools":
    """Return the tools of the folder beside a file. Raises ToolError."""
    from shared.secretstore.local import EnvironmentSecrets  # noqa: PLC0415 - keeps `--help` fast
    from shared.tools.host import ToolBox  # noqa: PLC0415 - with it
    from shared.tools.means import Means  # noqa: PLC0415 - with it
    from shared.tools.registry import load_tools  # noqa: PLC0415 - with it

    with redirect_stdout(sys.stderr):  # modules may print, too
        return ToolBox(load_tools(file.parent / "tools"), settings, Means(client, EnvironmentSecrets()))


def _check(engine: "InProcess") -> None:
    failure = engine.failure
    if failure:
        what = f"The run cannot be driven: {type(failure).__name__}: {failure}"
        raise Refused(what, f"The same command goes on with it. It is kept in {relative(runs_file())}.", code="engine")


def _request(published: "Published", data: Any, options: Options) -> "StartRequest":
    """Return what is to be started, by the command line or as if by a trigger. Raises Refused."""
    from shared.inprocess.workspace import TENANT  # noqa: PLC0415 - keeps `--help` fast
    from shared.runtime.runs import StartRequest  # noqa: PLC0415 - with it

    mode = "audit" if options.audit else "enforce"
    own = StartRequest(TENANT, signature(), "cli", {}, options.key, published.version, mode)
    if not options.trigger:
        return replace(own, input=dict(data))
    made = rehearsed(published, options.trigger, data)
    occurrence = options.key or made.occurrence  # the same key is the same thing happening again
    return replace(made, tenant=TENANT, key=options.key, budget_mode=mode, occurrence=occurrence)


def _begin(opened: Session, published: "Published", request: "StartRequest", earlier: Earlier) -> tuple[str, bool]:
    """Return the run to drive, and whether it is an interrupted one that goes on. Raises Refused."""
    from shared.errors import RequestRefused  # noqa: PLC0415 - keeps `--help` fast
    from shared.runtime.runs import start_run  # noqa: PLC0415 - with it

    if earlier.run and not request.key:
        opened.drive(earlier.run)
        return earlier.run, True
    try:
        run, new = start_run(opened.workspace.host(opened.engine, keepable(opened.side)), published, request)
    except RequestRefused as refused:
        told = refused_here(refused, "")
        told.remedy = told.remedy or "`--input` and `--set KEY=VALUE` give the input."
        raise told from None
    if not new:
        opened.drive(run)
    return run, not new


def _tell(opened: Session, run: str, file: Path, options: Options, *, resumed: bool) -> None:
    if options.as_json:
        print_line({"run": run, "new": not resumed} | ({"notes": opened.notes} if opened.notes else {}))
        return
    goes_on = " goes on where it was interrupted (--new starts another)" if resumed else f" of {relative(file)}"
    console().print(f"Run [bold]{run}[/]{goes_on}", soft_wrap=True)
    _say(opened)


def _say(opened: Session) -> None:
    for name, what in {**opened.told, **opened.notes}.items():
        console().print(f"  [dim]{name}: {escaped(hint(what))}[/]", soft_wrap=True)


def _finish(opened: Session, run: str, options: Options) -> None:
    def watched() -> str:
        if options.as_json:
            return stream(opened.api, story_of(opened.api, run), until_human=options.until_human)
        return _follow(opened, run, options)

    stands = f"Run {run} stands still. The same command goes on with it."
    attend(opened.api, run, watched, interrupted=stands, until_human=options.until_human, as_json=options.as_json)


def _follow(opened: Session, run: str, options: Options) -> str:
    """Show the run's steps as they finish; where somebody sits at the terminal, ask them what a person must decide."""
    story, asks = story_of(opened.api, run), sys.stdin.isatty() and sys.stdout.isatty() and not options.until_human
    if not asks and not options.until_human:
        console().print(f"  [dim]decide from another shell: {COMMAND} approvals list --in-process[/]", soft_wrap=True)
    while True:
        ended = follow(opened.api, story, until_human=asks or options.until_human)
        if ended in TERMINAL or not asks:
            return ended
        ask(opened.api, story.asks or run)


def refuse_options(why: str, **given: object) -> None:
    """Refuse options that have a value here but no meaning, and say `why`. Raises BadParameter."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(why, param_hint=f"--{name.strip('_').replace('_', '-')}")
