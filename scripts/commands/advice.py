"""What to do about a refusal of the API, by its stable code; the same for a server and for this machine's runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.commands.raises import proposed

BY_CODE = {
    "already_decided": "`signalbox approvals show APPROVAL` shows who decided it and when.",
    "completed": "`signalbox dead-letters dismiss RUN` takes its dead letters off the list, if it has any.",
    "digest_mismatch": "`signalbox approvals show APPROVAL` shows what would run now.",
    "expired": "`signalbox runs show RUN` shows what has become of the run.",
    "idempotency_mismatch": "Another request needs another --idempotency-key.",
    "initiator": "Somebody else whom it is asked of decides it, with a token or a link of their own.",
    "invalid_changes": "`signalbox approvals show APPROVAL --json` says under `edit` what may be changed.",
    "invalid_id": "`signalbox runs list` shows the ids of runs, `signalbox approvals list` those of approvals.",
    "no_dead_letter": "`signalbox dead-letters list` shows what is on it.",
    "not_paused": "`signalbox runs show RUN` shows how its steps stand.",
    "not_possible": "`signalbox runs show RUN` shows how its steps stand.",
    "run_ended": "`signalbox runs show RUN` shows how it ended, or what it waits for.",
    "unauthenticated": "Give it with --token or SIGNALBOX_TOKEN; without both, the local cloud's own is used.",
    "forbidden": "Use a token that has the role.",
    "tenant_budget_exceeded": "`signalbox tenants budget show NAME` shows it, `... set NAME` raises it.",
    "unknown_step": "`signalbox runs show RUN` shows its steps.",
}
HERE = {"initiator": "Somebody else decides it, from any shell: signalbox approvals approve APPROVAL --as NAME"}
"""Where the runs are this machine's own."""
PAUSED = {
    "budget_exceeded": "raise the limit that it would exceed: RESUME --raise-usd 0.50 (or --raise-tokens,"
    " --raise-steps, --raise-active-time), or --action fail",
    "provider_degraded": "when the provider is back: RESUME --action retry; or skip, accept or fail",
    "attestation_mismatch": "somebody else wrote an output that it reads: restore it, then RESUME --action retry;"
    " or fail",
    "approval_mismatch": "what would run is not what was approved: RESUME --action retry asks for a new approval;"
    " or skip or fail",
}
"""What a person can do about a run that is paused, by the reason; RESUME stands for the command."""
_LIMITS = {"usd": "USD", "tokens": "tokens", "steps": "steps", "active_time": "active time"}
NOT_FOUND = {
    "/v1/runs/": "`signalbox runs list` shows the runs.",
    "/v1/approvals/": "`signalbox approvals list` shows what waits for a decision.",
}
"""Where to find what there is, by the path that was asked for."""


UNKNOWN = {
    "accept": "--action accept --result JSON if it did",
    "did_not_happen": "--action did_not_happen if not",
    "retry": "--action retry makes it again with the same key",
    "skip": "--action skip leaves it and goes on",
    "fail": "--action fail gives it up",
}
"""What a person can say of a call that may have happened, where it is possible."""
_UNSEEN = ("accept", "did_not_happen", "skip", "fail")


def stuck(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the steps of a run that wait for a person's word."""
    return [step for step in found["steps"] if step["status"] in {"paused", "unknown"} and not step.get("given_up")]


def going_on(
    run: str, reason: str | None, command: str, waiting: Sequence[Mapping[str, Any]] = (), ending: str | None = None
) -> str:
    """Return how a run goes on that is paused for this reason; None = it is not known.

    ``waiting`` are the steps that wait, as far as they are known, the first one first; ``ending`` is how the run ends.
    """
    step: Mapping[str, Any] = waiting[0] if waiting else {}
    told = _said(reason, step)
    resume = f"{command} runs resume {run}" + (f" --step {step['path']}" if len(waiting) > 1 else "")
    return (f"the run ends as {ending} and waits for this: " if ending else "") + told.replace("RESUME", resume)


def _said(reason: str | None, step: Mapping[str, Any]) -> str:
    actions: Sequence[str] | None = step.get("actions")
    if reason == "budget_exceeded" and step.get("short"):
        return _raising(step["short"])
    if reason == "unknown_outcome":
        ways = [UNKNOWN[one] for one in UNKNOWN if one in (_UNSEEN if actions is None else actions)]
        return (
            "look on the far side whether it happened: RESUME "
            + ", ".join(ways[:2])
            + "".join(f"; {one}" for one in ways[2:])
        )
    if reason in PAUSED:
        return PAUSED[reason]
    ways = ["retry", "skip", "accept", "fail"] if actions is None else list(actions)
    *others, last = [one.replace("accept", "accept (with --result)") for one in ways] or ["retry"]
    return f"say how it goes on: RESUME --action {', '.join(others)}{' or ' if others else ''}{last}"


def _raising(short: Mapping[str, Any]) -> str:
    dimension, amount = proposed(short)
    option = f"--raise-{dimension.replace('_', '-')} {amount}"
    return f"raise the limit of {_LIMITS[dimension]} that it would exceed: RESUME {option}, or --action fail"


def remedy(code: str, path: str, *, here: bool = False) -> str:
    """Return what to do about a refusal of `code`; empty where its own words say all. ``here`` = no server refused."""
    if code == "not_found":
        found = next((told for start, told in NOT_FOUND.items() if path.startswith(start)), "")
    else:
        found = (HERE.get(code) if here else None) or BY_CODE.get(code, "")
    named = path.split("/")[3] if path.count("/") > 2 else ""  # noqa: PLR2004 - /v1/runs/ID, /v1/approvals/ID
    if named:
        found = found.replace("APPROVAL", named).replace("RUN", named.partition(".")[0])
    return found.replace(" list` ", " list --in-process` ") if here else found
