"""A machine as a short drawing: the flow without the states that only trouble reaches."""

from collections.abc import Iterator, Mapping
from typing import Any

TROUBLE = ("cascade", "cascaded", "backoff", "recheck", "parked", "fallback", "failed", "done")


def outline(machine: Mapping[str, Any]) -> str:
    """Draw a machine, one line a state, each followed by what it leads to."""
    return "\n".join(_machine(machine, "")) + "\n"


def _machine(machine: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name in _reached(machine):
        state = machine["States"][name]
        if name.rpartition(" · ")[2] not in TROUBLE and not name.endswith(("failed", "done")):
            yield f"{indent}{name}: {_what(state)}"
            for branch in state.get("Branches", ()):
                yield f"{indent}  -"
                yield from _machine(branch, f"{indent}  | ")


def _reached(machine: Mapping[str, Any]) -> Iterator[str]:
    stack, seen = [machine["StartAt"]], set()
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            yield name
            stack += reversed(_targets(machine["States"][name]))


def _targets(state: Mapping[str, Any]) -> list[str]:
    rules = [rule["Next"] for rule in (*state.get("Choices", ()), *state.get("Catch", ()))]
    return [*rules, *(state[key] for key in ("Default", "Next") if key in state)]


def _what(state: Mapping[str, Any]) -> str:
    goes = f"-> {state['Next']}" if "Next" in state else "end" if state.get("End") else ""
    match state["Type"]:
        case "Task":
            call = state["Parameters"]
            parks = " (parks)" if state["Resource"].endswith("waitForTaskToken") else ""
            keeps = f" keeps {state['ResultPath']}" if state["ResultPath"] else ""
            return f"{call['Payload']['op']} on {call['FunctionName'][2:-1]}{parks}{keeps} {goes}"
        case "Choice":
            rules = ", ".join(f"{rule['StringEquals']} -> {rule['Next']}" for rule in state["Choices"])
            return f"{state['Choices'][0]['Variable']}: {rules}, else -> {state['Default']}"
        case kind:
            return f"{kind} {goes}".strip()
