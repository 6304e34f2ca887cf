"""What answers the calls of runs of files: as the command says, or, for a run that goes on, as it began."""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.commands.local_runs import runs_file
from scripts.commands.output import Refused, relative
from scripts.commands.toolsettings import PREFIX, given_settings, tool_settings

if TYPE_CHECKING:
    from scripts.local.web import Service
    from shared.inprocess.farside import FarSide
    from shared.ports import Models

ERP_URL = "ERP_URL"
KEY = "ANTHROPIC_API_KEY"
URL = "SIGNALBOX_MODELS_URL"
Notes = dict[str, str]
"""What is said of a run at its beginning, by a word."""


def of_now(file: Path, given: Sequence[str], models_url: str | None) -> "FarSide":
    """Return the far side of a new run of a file, by options and environment."""
    from shared.inprocess.farside import FarSide  # noqa: PLC0415 - keeps `--help` fast

    settings, key = tool_settings(given), bool(os.environ.get(KEY))
    url = models_url or os.environ.get(URL, "")
    models = "at" if url else "real" if key else "rehearsed"
    erp = models == "rehearsed" and ERP_URL not in settings and (file.parent / "tools").is_dir()
    return FarSide(settings, models, url, key, erp)


def of_run(run: str, kept: "FarSide", given: Sequence[str], models_url: str | None) -> tuple["FarSide", Notes]:
    """Return the far side of a run that goes on: the kept one, where no option names another, and what to say of it.

    Raises Refused where something is needed that was not kept.
    """
    named = given_settings(given)
    here = {name: value for name, value in tool_settings().items() if name in kept.withheld}
    side = replace(kept, settings={**here, **kept.settings, **named}, erp=kept.erp and ERP_URL not in named)
    side = _with_models(side, kept, models_url)
    _check(run, side)
    return side, _notes(kept, named, models_url)


def _with_models(side: "FarSide", kept: "FarSide", models_url: str | None) -> "FarSide":
    """Return it with the models that an option names, else with those that were kept."""
    if models_url:
        return replace(side, models="at", models_url=models_url, key=bool(os.environ.get(KEY)))
    if kept.models == "at" and not kept.models_url:
        return replace(side, models_url=os.environ.get(URL, ""))
    return side


def _check(run: str, side: "FarSide") -> None:
    from shared.inprocess.farside import MODELS_URL  # noqa: PLC0415 - keeps `--help` fast

    missing = [f"{PREFIX}{name}" for name in side.withheld if name not in {*side.settings, MODELS_URL}]
    missing += [URL] if side.models == "at" and not side.models_url else []
    missing += [KEY] if side.key and side.models != "rehearsed" and not os.environ.get(KEY) else []
    if not missing:
        return
    what = f"Run {run} was started with {', '.join(missing)}, which may be secret and is not kept."
    remedy = f"Set {'it' if len(missing) == 1 else 'them'} again, then: signalbox runs resume {run}"
    raise Refused(what, f"{remedy} (`run FILE` also takes --set-tool and --models-url).", code="settings_missing")


def _notes(kept: "FarSide", named: Mapping[str, str], models_url: str | None) -> Notes:
    """Say where options or the environment differ from what the run has had so far."""
    told, here, erp = Notes(), tool_settings(), {ERP_URL: "the stand-in"} if kept.erp else {}
    for name, value in ({**kept.settings, **erp}).items():
        if named.get(name, value) != value:
            told[name] = f"another one than so far, which was {value}"
        elif name not in named and here.get(name, value) != value:
            told[name] = f"{value}, as the run began, not {PREFIX}{name} (--set-tool of `run FILE` names another)"
    for name in here.keys() - {*kept.settings, *kept.withheld, *named, *erp}:
        told[name] = f"not used: the run began without {PREFIX}{name} (--set-tool of `run FILE` gives it)"
    before = kept.models_url or kept.models
    if models_url and models_url != before:
        told["models' address"] = f"another one than so far; models were {before}"
    elif kept.models != "at" and os.environ.get(URL):
        told["models' address"] = f"models are {before}, as the run began, not at {URL}"
    return told


def keepable(side: "FarSide") -> "FarSide":
    """Return what of it is kept with a run: nothing that may be secret."""
    from shared.secretstore.local import PREFIX as SECRET  # noqa: PLC0415 - keeps `--help` fast

    return side.keepable(value for name, value in os.environ.items() if name.startswith(SECRET) or name == KEY)


def open_models(side: "FarSide", file: Path, services: "list[Service]", told: Notes) -> "Models":
    """Return the models of a far side; their rehearsal is served by this process."""
    from shared.models.anthropic import AnthropicModels  # noqa: PLC0415 - keeps `--help` fast

    key = os.environ.get(KEY, "")
    if side.models == "real":
        told["models"] = f"real ones, with your {KEY}"
        return AnthropicModels(lambda: key)
    if side.models == "at":
        told["models"] = side.models_url
        return AnthropicModels(lambda: key if side.key else "rehearsal", side.models_url)
    url = _rehearsal(file, services)
    told["models"] = "rehearsed, as the run began" if key else f"rehearsed ({KEY} calls real ones)"
    return AnthropicModels(lambda: "rehearsal", url)


def _rehearsal(file: Path, services: "list[Service]") -> str:
    from scripts.local.rehearsal import SCRIPTS, Rehearsal  # noqa: PLC0415 - only where nothing else answers

    own = file.resolve().parent / "fixtures" / "rehearsal"
    return _serve(Rehearsal(scripts=own if own.is_dir() else SCRIPTS), services)


def open_settings(side: "FarSide", services: "list[Service]", told: Notes) -> dict[str, str]:
    """Return the tools' settings, with the ERP's stand-in where it is the ERP. Its documents outlive this process."""
    if not side.erp:
        return dict(side.settings)
    from scripts.local.erp import Erp  # noqa: PLC0415 - as above

    kept = runs_file().with_name("erp.json")
    told["ERP"] = f"a stand-in; its documents are in {relative(kept)}"
    return {**side.settings, ERP_URL: _serve(Erp(file=kept), services)}


def _serve(service: "Service", services: "list[Service]") -> str:
    untyped: Any = service
    untyped.RequestHandlerClass = type("Quiet", (untyped.RequestHandlerClass,), {"log_message": _no_log})
    threading.Thread(target=service.serve_forever, daemon=True).start()
    services.append(service)
    return service.url


def _no_log(*_: object) -> None:
    """Requests are not shown: the terminal belongs to the run."""
