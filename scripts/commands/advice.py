"""What to do about a refusal of the API, by its stable code; the same for a server and for this machine's runs."""

BY_CODE = {
    "already_decided": "`signalbox approvals show APPROVAL` shows who decided it and when.",
    "digest_mismatch": "`signalbox approvals show APPROVAL` shows what would run now.",
    "expired": "`signalbox runs show RUN` shows what has become of the run.",
    "idempotency_mismatch": "Another request needs another --idempotency-key.",
    "initiator": "Somebody else whom it is asked of decides it, with a token or a link of their own.",
    "invalid_changes": "`signalbox approvals show APPROVAL --json` says under `edit` what may be changed.",
    "invalid_id": "`signalbox runs list` shows the ids of runs, `signalbox approvals list` those of approvals.",
    "not_paused": "`signalbox runs show RUN` shows how its steps stand.",
    "run_ended": "`signalbox runs show RUN` shows how it ended.",
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
    "unknown_outcome": "look on the far side whether it happened: RESUME --action accept --result JSON if it did,"
    " --action did_not_happen if not; --action fail gives it up",
    "provider_degraded": "when the provider is back: RESUME --action retry; or skip, accept or fail",
    "attestation_mismatch": "somebody else wrote an output that it reads: restore it, then RESUME --action retry;"
    " or fail",
    "approval_mismatch": "what would run is not what was approved: RESUME --action retry asks for a new approval;"
    " or skip or fail",
}
"""What a person can do about a run that is paused, by the reason; RESUME stands for the command."""
NOT_FOUND = {
    "/v1/runs/": "`signalbox runs list` shows the runs.",
    "/v1/approvals/": "`signalbox approvals list` shows what waits for a decision.",
}
"""Where to find what there is, by the path that was asked for."""


def going_on(run: str, reason: str | None, command: str) -> str:
    """Return how a run goes on that is paused for this reason; None = it is not known."""
    told = PAUSED.get(reason or "", "say how it goes on: RESUME --action retry, skip, accept (with --result) or fail")
    return told.replace("RESUME", f"{command} runs resume {run}")


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
