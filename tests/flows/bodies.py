"""Hand-made manifests with maps and loops, and worlds to run them in."""

from __future__ import annotations

import json

from machine import World

from shared.compiler import compile_manifest
from shared.errors import PermanentFailure
from shared.manifest import Body, Edge, Limits, Manifest, StepPlan
from shared.runtime.task import Task
from shared.testing import FakeModels, FakeTools

BUDGET = Limits(usd=10**9, tokens=10_000, steps=60, active_time=36_000.0)


def plan(name, kind, needs=(), **more):
    edges = tuple(edge if isinstance(edge, Edge) else Edge(edge) for edge in needs)
    return StepPlan(name, kind, edges, **more)


def tool(name, *needs, say=None, **more):
    spec = {"tool": "do", "with": {"say": say or name}, "compensate": None, "reconcile": None}
    return plan(name, "tool", needs, spec=spec, **more)


def body(*plans):
    return Body(linked(plans), tuple(one.id for one in plans))


def linked(plans):
    steps = {}
    for one in plans:
        dependents = tuple(other.id for other in plans if one.id in {edge.source for edge in other.needs})
        steps[one.id] = StepPlan(**{**{name: getattr(one, name) for name in one.__slots__}, "dependents": dependents})
    return steps


def each(*plans, over, on_failure="collect_all", collect=None, name="each", needs=(), **more):
    spec = {
        "over": over,
        "as": "thing",
        "max_concurrency": 0,
        "on_failure": on_failure,
        "collect": collect,
        "max_items": 20,
    }
    return plan(name, "map", needs, spec=spec, body=body(*plans), **more)


def loop(*plans, until, times=5, collect=None, name="again", needs=(), **more):
    spec = {"until": until, "max_iterations": times, "collect": collect}
    return plan(name, "loop", needs, spec=spec, body=body(*plans), **more)


def manifest(*plans, name="w", budget=BUDGET):
    order = tuple(one.id for one in plans)
    return Manifest(name, "", {"type": "object"}, budget, linked(plans), order, max_parallel=1000)


def world(*plans, do=None):
    tools = FakeTools({"do": do or (lambda arguments, _: arguments["say"])})
    return World(compile_manifest(manifest(*plans)), FakeModels(lambda _: "yes"), tools)


def said(w):
    return [arguments["say"] for _, arguments, _ in w.tools.calls]


def output(w, path):
    return json.loads(w.records.step(path).output.text)


def task(w, step, scope=""):
    return Task("run", step, scope, w.run, w.tenant, "w", 1, w.head.epoch, "", "person", 0)


def refuse(*words, error=PermanentFailure):
    def do(arguments, _):
        if arguments["say"] in words:
            raise error("no")
        return arguments["say"]

    return do


def loses_one():
    """Return a tool whose first call is lost, as if nobody ever heard what became of it."""
    lost = []

    def call(given, _):
        if not lost:
            lost.append(given)
            raise TimeoutError
        return given

    return call
