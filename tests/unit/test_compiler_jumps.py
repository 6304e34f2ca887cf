"""Jumps on random graphs with routers: what a machine jumps over is exactly what could only have been skipped."""

import json
import random

import pytest

from shared.compiler import compile_manifest
from shared.manifest import Edge, Limits, Manifest, StepPlan


def random_manifest(rng):
    names = [f"s{index}" for index in range(rng.randint(2, 25))]
    needs = {
        name: tuple(rng.sample(names[:index], min(index, rng.choice([0, 1, 1, 1, 2]))))
        for index, name in enumerate(names)
    }
    joins = {name: rng.choice(["all", "all", "all", "any", len(its)]) for name, its in needs.items() if its}
    plans = {
        name: StepPlan(
            id=name,
            type="router" if rng.random() < 0.3 else "transform",
            needs=tuple(Edge(source) for source in its),
            dependents=tuple(other for other, others in needs.items() if name in others),
            join=joins.get(name, "all"),
            spec={"strategy": "rules"},
        )
        for name, its in needs.items()
    }
    return Manifest("w", "", {}, Limits(), plans, tuple(plans))


def completed(manifest, chosen):
    """The steps that run when the routers choose so and nothing fails."""
    done = set()
    for name in manifest.order:
        plan = manifest.steps[name]
        active = sum(edge.source in done and chosen.get(edge.source, name) == name for edge in plan.needs)
        wanted = plan.join if isinstance(plan.join, int) else 1
        if not plan.needs or active >= wanted:
            done.add(name)
    return done


def walk(machine, routes, chosen, done, visited):
    """Follow a machine as the engine would; steps that are skipped on entry answer an empty route."""
    name = machine["StartAt"]
    while name is not None:
        state = machine["States"][name]
        if state["Type"] == "Parallel":
            for branch in state["Branches"]:
                walk(branch, dict(routes), chosen, done, visited)
        elif state["Type"] == "Choice":
            answer = {rule["Variable"]: routes[rule["Variable"].split(".")[2]] for rule in state["Choices"]}
            hits = [rule["Next"] for rule in state["Choices"] if answer[rule["Variable"]] == rule["StringEquals"]]
            name = hits[0] if hits else state["Default"]
            continue
        elif state["Type"] == "Task" and state["Parameters"]["Payload"]["op"] == "run":
            assert name not in visited
            visited.append(name)
            if state["ResultPath"]:
                routes[name] = chosen[name] if name in done else ""
        name = state.get("Next")


@pytest.mark.parametrize("seed", range(200))
def test_no_step_that_runs_is_jumped_over(seed):
    rng = random.Random(seed)  # noqa: S311 - graphs, not secrets
    manifest = random_manifest(rng)
    asl = compile_manifest(manifest).asl
    routers = {name: plan.dependents for name, plan in manifest.steps.items() if plan.type == "router"}
    for _ in range(5):
        chosen = {name: rng.choice(targets or ("",)) for name, targets in routers.items()}
        done, visited = completed(manifest, chosen), []
        walk(asl, {}, chosen, done, visited)
        assert done <= set(visited)


def test_the_random_graphs_do_contain_jumps():
    machines = [compile_manifest(random_manifest(random.Random(seed))).asl for seed in range(200)]  # noqa: S311 - as above
    assert sum("$.routes." in str(machine) for machine in machines) > 50


def test_nothing_is_jumped_over_that_may_run_without_the_router():
    spec = {"strategy": "rules", "routes": [{"to": "a", "when": "true"}], "default": "c"}

    def steps(optional):
        needs = (Edge("r", optional=optional),)
        plans = [
            StepPlan("r", "router", (), dependents=("a", "c"), on_error="continue", optional=optional, spec=spec),
            StepPlan("a", "transform", needs, dependents=("b",), spec={"set": {}}),
            StepPlan("b", "transform", (Edge("a"),), spec={"set": {}}),
            StepPlan("c", "transform", needs, spec={"set": {}}),
        ]
        order = tuple(plan.id for plan in plans)
        return Manifest("w", "", {}, Limits(), {plan.id: plan for plan in plans}, order)

    assert "$.routes.r" in json.dumps(compile_manifest(steps(optional=False)).asl)
    assert "$.routes.r" not in json.dumps(compile_manifest(steps(optional=True)).asl)
