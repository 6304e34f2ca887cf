"""What steps return: whether it fits its schema, and whether it can be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from shared import values
from shared.errors import AttestationMismatch, InvalidOutput, PermanentFailure, TooLarge
from shared.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Step
    from shared.manifest import StepPlan
    from shared.ports import Blobs, Usage
    from shared.runtime.host import Host
    from shared.runtime.task import Task


def output_of(step: Step | None, blobs: Blobs) -> Any:
    """Return the output of a step; None where it has none. Raises AttestationMismatch when it was not written by us."""
    check_attested(step)
    return values.load(step.output, blobs) if step else None


def check_attested(step: Step | None) -> None:
    """Raise AttestationMismatch for a step whose output was not written by us."""
    if step and step.forged:
        raise AttestationMismatch(
            f"The output of {step.path} does not carry our attestation: somebody else wrote it, or the key is gone. "
            "Restore it, then retry; or give this step's own result."
        )


def fits(output: Any, schema: Mapping[str, Any] | None) -> str | None:
    """Return what keeps ``output`` from fitting ``schema``, or None when it fits."""
    if not schema:
        return None
    import jsonschema  # noqa: PLC0415 - 0.2 s that only steps with a schema pay
    from referencing import Registry  # noqa: PLC0415 - with it
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - with it

    library = cast("Any", jsonschema)
    validator = library.Draft202012Validator(schema, registry=cast("Any", Registry)())  # knows nothing, fetches nothing
    try:
        error = library.exceptions.best_match(validator.iter_errors(output))
    except Unresolvable as unknown:
        return f"$: its schema refers to {str(unknown.ref)[:80]!r}, which is not part of it"
    if error is None:
        return None
    # The library's message quotes the value, which must not be told where something of it must not be kept.
    secret = redacted(output, schema) != output
    return (
        f"{error.json_path}: it breaks `{error.validator}`" if secret else f"{error.json_path}: {error.message}"[:500]
    )


def checked(host: Host, task: Task, plan: StepPlan, output: Any, usage: Usage | None = None) -> values.Value:
    """Store what a call returned.

    Raises InvalidOutput when it does not fit its schema or is no JSON at all, and TooLarge, which is final.
    """
    clean = cleaned(plan, output, usage)
    try:
        return values.store(clean, host.blobs, task.tenant)
    except TooLarge as error:
        raise TooLarge(f"The output of {plan.id} cannot be kept: {error}", usage=usage) from error
    except (PermanentFailure, RecursionError) as error:
        raise InvalidOutput(f"The output of {plan.id} cannot be kept: {error}", usage=usage) from error


def route_in(plan: StepPlan, output: Any) -> str | None:
    """Return the route that the output of a router's fallback names; None for any other step's."""
    return output["route"] if plan.spec.get("chooses") else None


def cleaned(plan: StepPlan, output: Any, usage: Usage | None = None) -> Any:
    """Return what a call returned without what must not be kept. Raises InvalidOutput when it does not fit."""
    try:
        wrong, clean = fits(output, plan.output), redacted(output, plan.output)
    except (PermanentFailure, RecursionError) as error:
        raise InvalidOutput(f"The output of {plan.id} cannot be kept: {error}", usage=usage) from error
    if wrong:
        raise InvalidOutput(f"The output of {plan.id} does not fit its schema at {wrong}", usage=usage)
    return clean
