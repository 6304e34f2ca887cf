"""A run in the middle of its work, as a version has written it: its items, blobs, definitions and executions.

``record_all`` writes those of the version at hand into a folder of its name: once, with its release. What was recorded
is never changed afterwards.
"""

from __future__ import annotations

import json
import tomllib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from faults import Tap
from routes import ROUTES, calls_of

from shared.compiler import compile_manifest
from shared.manifest import Manifest
from shared.ports import Key
from shared.testing import FixedDefinitions

if TYPE_CHECKING:
    from play import Play

HERE = Path(__file__).parent
RECORDED = (
    "approve",
    "cancel",
    "undone parts",
    "looped parts",
    "agent",
    "resumed",
    "budget",
    "sub-workflow",
    "event",
    "fallback",
    "pay, two people",
    "pay, escalated",
    "pay, denied",
)
"""Routes of the crash matrix that are recorded."""
SHARES = (0.35, 0.7, 1.0)
"""How far each has come."""


class Cut(BaseException):
    """The recording has come far enough."""


def all_recorded() -> list[Path]:
    """Return the files of all versions."""
    return sorted(HERE.glob("*/*.json"))


def record(route: str, share: float) -> dict[str, Any]:
    """Return what a route has written when it has come so far."""
    tap = Tap()
    play, _ = ROUTES[route].make(tap)
    last = int(len(calls_of(route)) * share)
    counted = tap.kind_of

    def cut(name: str) -> str:
        if len(tap.calls) > last:
            raise Cut
        return counted(name)

    tap.kind_of = cut
    with suppress(Cut):
        play.to_the_end()
    world, units = play.world, (play.world.unit, *play.beside)
    return {
        "route": route,
        "run": world.run,
        "now": world.clock.now(),
        "manifests": [unit.manifest.to_json() for unit in units],
        "items": [{**item, "pk": key.pk, "sk": key.sk} for key, item in world.store.items.items()],
        "blobs": {key: data.decode() for key, data in world.blobs.objects.items()},
        "executions": [[*name, data] for name, data in world.engine.executions.items()],
    }


def route_of(file: Path) -> str:
    """Return the name of the route that a file was recorded on."""
    return json.loads(file.read_text("utf-8"))["route"]


def restored(file: Path) -> Play:
    """Return the play of a recorded run, whose executions have all died since, as this version finds it."""
    known = json.loads(file.read_text("utf-8"))
    play, _ = ROUTES[known["route"]].make(Tap())
    world = play.world
    manifests = [Manifest.from_json(each) for each in known["manifests"]]
    units = [compile_manifest(each) for each in manifests]
    world.unit, play.beside = units[0], tuple(units[1:])
    world.define(FixedDefinitions(*manifests))
    world.run, world.clock.time = known["run"], known["now"]
    world.store.items.update({Key(item["pk"], item["sk"]): item for item in known["items"]})
    world.blobs.objects.update({key: text.encode() for key, text in known["blobs"].items()})
    for machine, name, data in known["executions"]:
        world.engine.executions[machine, name] = data
        play.executions[machine, name] = SimpleNamespace(status="FAILED", waiting={})  # pyright: ignore[reportArgumentType]
    play.healers = ("sweep",)
    return play


def record_all() -> None:
    """Record the version at hand. Raises FileExistsError when it has been."""
    version = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    (HERE / version).mkdir()
    for route in RECORDED:
        for share in SHARES:
            name = f"{route.replace(', ', '-').replace(' ', '-')}-{int(share * 100)}.json"
            text = json.dumps(record(route, share), ensure_ascii=False, separators=(",", ":"))
            (HERE / version / name).write_text(text + "\n", "utf-8")
