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
            for inner in (*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ())):
                yield f"{indent}  -"
                yield from _machine(inner, f"{indent}  | ")


def _reached(machine: Mapping[str, Any]) -> Iterator[str]:
    stack, seen = [machine["StartAt"]], set()
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            yield name
            stack += reversed(_targets(machine["States"][name]))


def _targets(state: Mapping[str, Any]) -> list[str]:
    ways = [rule["Next"] for rule in state.get("Choices", ())]
    ways += [state[key] for key in ("Next", "Default") if key in state]
    return [*ways, *(rule["Next"] for rule in state.get("Catch", ()))]


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
        case "Map":
            scope = state["ItemSelector"]["scope.$"]
            limit = f"at most {state['MaxConcurrency']}" if state["MaxConcurrency"] else "all"
            return f"Map over {state['ItemsPath']}, {limit} at once, scope {scope} {goes}"
        case "Wait":
            return f"Wait {state['SecondsPath']} {goes}"
        case "Parallel" if "Parameters" in state:
            return f"Parallel, scope {state['Parameters']['scope.$']} {goes}".strip()
        case kind:
            return f"{kind} {goes}".strip()
