"""`run FILE`: a workflow file in this very process, with no cloud at all; kill it, run it again, and it goes on."""

import os
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scripts.commands.attend import attend
from scripts.commands.follow import TERMINAL, follow, story_of, stream
from scripts.commands.local_runs import LocalRuns, open_workspace, refused_here, runs_file, signature
from scripts.commands.output import COMMAND, Refused, console, print_line, relative
from scripts.commands.own_aws import client
from scripts.commands.prompt import ask
from scripts.commands.toolprint import tools_print_to_stderr
from scripts.commands.toolsettings import servers_told, tool_settings
from scripts.commands.triggers import rehearsed

if TYPE_CHECKING:
    from scripts.local.web import Service
    from shared.compiler import Compiled
    from shared.inprocess.engine import InProcess
    from shared.inprocess.workspace import Workspace
    from shared.ports import Models
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
    """This process's engine with everything around it."""

    workspace: "Workspace"
    engine: "InProcess"
    api: LocalRuns
    told: dict[str, str] = field(default_factory=dict[str, str])

    def drive(self, run: str) -> None:
        """Drive a run. Raises Refused when another process does."""
        if not self.engine.host(run):
            what = f"Another process drives run {run}."
            raise Refused(what, f"Follow it from here: signalbox runs watch {run}", code="driven_elsewhere")


def run_file(file: Path, data: Any, options: Options) -> None:
    """Run a workflow file until it ends. Leaves by typer.Exit with the same codes as `runs watch`. Raises Refused.

    ``data`` is the run's input, or what happens for its trigger.
    """
    compiled = _compiled(file, options)
    with session(file, compiled.manifest.max_parallel, options) as opened:
        published = publish(opened.workspace, compiled, file, options)
        run, resumed = _begin(opened, published, _request(published, data, options), options)
        _tell(opened, run, file, options, resumed=resumed)
        _finish(opened, run, options)


def go_on(api: LocalRuns, run: str, *, as_json: bool) -> None:
    """Drive a run that no process drives, until it ends or needs a person. Leaves by typer.Exit."""
    file = Path(api.workspace.file_of(run))
    workers = api.workspace.definitions.manifest(*_version(api, run)).max_parallel
    api.workspace.close()
    options = Options(until_human=not sys.stdin.isatty(), as_json=as_json)
    with session(file, workers, options) as opened:
        opened.drive(run)
        if not as_json:
            console().print(f"No process drove run [bold]{run}[/]; this one does now.")
        _finish(opened, run, options)


def _version(api: LocalRuns, run: str) -> tuple[str, int]:
    facts = api.workspace.facts(run)
    return facts.workflow, facts.version


def _compiled(file: Path, options: Options) -> "Compiled":
    from shared.compiler import compile_file  # noqa: PLC0415 - a second of imports
    from shared.errors import DefinitionError  # noqa: PLC0415 - with it

    if not file.is_file():
        what = f"{file} is a folder." if file.is_dir() else f"There is no file {file}."
        raise Refused(what, "Name a workflow file, such as workflows/invoice.yaml.", code="no_file")
    try:
        return compile_file(file, servers=servers_told(tool_settings(options.settings)))
    except DefinitionError as error:
        told = "\n".join(str(finding) for finding in error.findings)
        raise Refused(told, "`signalbox validate` shows the same, one by one.", code="definition_refused") from None


def publish(
    workspace: "Workspace", compiled: "Compiled", file: Path, options: Options, seen: frozenset[str] = frozenset()
) -> "Published":
    """Keep the file as a version, and the files beside it that it names as sub-workflows. Raises Refused."""
    for name in sorted(_children(compiled.manifest.steps) - seen - {compiled.name}):
        beside = file.with_name(f"{name}.yaml")
        publish(workspace, _compiled(beside, options), beside, options, seen | {compiled.name})
    return workspace.publish(compiled, file)


def _children(steps: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for plan in steps.values():
        if plan.type == "sub_workflow":
            found.add(str(plan.spec["workflow"]))
        if plan.body:
            found |= _children(plan.body.steps)
    return found


@contextmanager
def session(file: Path, max_parallel: int, options: Options) -> Generator[Session]:
    """Open the store, models and tools of a file, and an engine that drives its runs. Raises Refused."""
    from shared.secretstore.local import EnvironmentSecrets  # noqa: PLC0415 - keeps `--help` fast
    from shared.tools.host import ToolBox  # noqa: PLC0415 - with it
    from shared.tools.means import Means  # noqa: PLC0415 - with it
    from shared.tools.registry import ToolError, load_tools  # noqa: PLC0415 - with it

    workspace, services, told = open_workspace(), list["Service"](), dict[str, str]()
    engine = workspace.engine(max_parallel + _SPARE_WORKERS)
    try:
        settings = tool_settings(options.settings)
        models = _models(file, options, services, told)
        if (file.parent / "tools").is_dir():
            _erp(settings, services, told)
        with redirect_stdout(sys.stderr):  # modules may print, too
            tools = ToolBox(load_tools(file.parent / "tools"), settings, Means(client, EnvironmentSecrets()))
        engine.open(workspace.handlers(engine, models, tools))
        with tools_print_to_stderr():
            yield Session(workspace, engine, LocalRuns(workspace, engine, options.by, lambda: _check(engine)), told)
    except ToolError as error:
        raise Refused(str(error), "Mend the tool.", code="tools") from None
    finally:
        engine.close()
        for service in services:
            service.shutdown()
        workspace.close()


def _check(engine: "InProcess") -> None:
    failure = engine.failure
    if failure:
        what = f"The run cannot be driven: {type(failure).__name__}: {failure}"
        raise Refused(what, f"The same command goes on with it. It is kept in {relative(runs_file())}.", code="engine")


def _models(file: Path, options: Options, services: "list[Service]", told: dict[str, str]) -> "Models":
    """Return real models with a key; else those at the given address; else a rehearsal of this process."""
    from shared.models.anthropic import AnthropicModels  # noqa: PLC0415 - keeps `--help` fast

    key, url = os.environ.get("ANTHROPIC_API_KEY", ""), options.models_url or os.environ.get("SIGNALBOX_MODELS_URL", "")
    if key and not url:
        told["models"] = "real ones, with your ANTHROPIC_API_KEY"
        return AnthropicModels(lambda: key)
    if not url:
        url = _rehearsal(file, services)
        told["models"] = "rehearsed (ANTHROPIC_API_KEY calls real ones)"
    told.setdefault("models", url)
    return AnthropicModels(lambda: key or "rehearsal", url)


def _rehearsal(file: Path, services: "list[Service]") -> str:
    from scripts.local.rehearsal import SCRIPTS, Rehearsal  # noqa: PLC0415 - only where nothing else answers

    own = file.resolve().parent / "fixtures" / "rehearsal"
    return _serve(Rehearsal(scripts=own if own.is_dir() else SCRIPTS), services)


def _erp(settings: dict[str, str], services: "list[Service]", told: dict[str, str]) -> None:
    """Start the ERP stand-in where models are rehearsed and no ERP is named. Its documents outlive this process."""
    if "ERP_URL" in settings or not services:
        return
    from scripts.local.erp import Erp  # noqa: PLC0415 - as above

    kept = runs_file().with_name("erp.json")
    settings["ERP_URL"] = _serve(Erp(file=kept), services)
    told["ERP"] = f"a stand-in; its documents are in {relative(kept)}"


def _serve(service: "Service", services: "list[Service]") -> str:
    untyped: Any = service
    untyped.RequestHandlerClass = type("Quiet", (untyped.RequestHandlerClass,), {"log_message": _no_log})
    threading.Thread(target=service.serve_forever, daemon=True).start()
    services.append(service)
    return service.url


def _no_log(*_: object) -> None:
    """Requests are not shown: the terminal belongs to the run."""


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


def _begin(opened: Session, published: "Published", request: "StartRequest", options: Options) -> tuple[str, bool]:
    """Return the run to drive, and whether it is an interrupted one that goes on. Raises Refused."""
    from shared.errors import RequestRefused  # noqa: PLC0415 - keeps `--help` fast
    from shared.runtime.runs import start_run  # noqa: PLC0415 - with it
    from shared.values import digest  # noqa: PLC0415 - with it

    asked, chosen = digest(request.input), options.new or options.key
    found = None if chosen else opened.workspace.interrupted(published, asked)
    if found is not None:
        opened.drive(found)
        return found, True
    beside = None if chosen else opened.workspace.under_way(published, asked)
    if beside:
        opened.told["beside it"] = f"run {beside}, with the same input, under way in another process"
    try:
        run, new = start_run(opened.workspace.host(opened.engine), published, request)
    except RequestRefused as refused:
        told = refused_here(refused, "")
        told.remedy = told.remedy or "`--input` and `--set KEY=VALUE` give the input."
        raise told from None
    if not new:
        opened.drive(run)
    return run, not new


def _tell(opened: Session, run: str, file: Path, options: Options, *, resumed: bool) -> None:
    if options.as_json:
        print_line({"run": run, "new": not resumed})
        return
    goes_on = " goes on where it was interrupted (--new starts another)" if resumed else f" of {relative(file)}"
    console().print(f"Run [bold]{run}[/]{goes_on}", soft_wrap=True)
    for name, what in opened.told.items():
        console().print(f"  [dim]{name}: {what}[/]", soft_wrap=True)


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
