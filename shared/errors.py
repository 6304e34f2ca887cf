"""The tree of errors. Each knows what it means to the caller or, for a failed attempt, to the retry cascade.

SignalboxError
├── DefinitionError            a workflow file is refused; carries every finding
├── RequestRefused             a request is refused; carries an HTTP status and a stable code
│   ├── InvalidRequest   400   ├── Unauthenticated 401   ├── Forbidden 403   ├── NotFound 404
│   ├── MethodNotAllowed 405   ├── Conflict        409   ├── UnfitChanges 422   ├── UnfitInput 422
│   ├── TenantBudgetExceeded 402  └── Unverified   401
├── StoreConflict              a conditional write lost; re-read and decide again
└── StepFailure                an attempt failed; carries its class, from which the cascade decides
    ├── StepTimeout  ├── RateLimited  ├── TransientFailure  ├── InvalidOutput  ├── PermanentFailure
    │                                ├── ServiceHeld       ├── BrokenTool
    │                                └── Unreached         └── UnclearAnswer
    └── BudgetExceeded  ├── Rejected  ├── UnknownOutcome  ├── PolicyViolation
                                                          ├── ApprovalMismatch  ├── AttestationMismatch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from shared.ports import Usage

ErrorClass = Literal[
    "timeout",
    "rate_limit",
    "transient",
    "invalid_output",
    "permanent",
    "budget",
    "rejected",
    "unknown_outcome",
    "policy",
]


class SignalboxError(Exception):
    """Root of everything Signalbox raises on purpose."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a workflow file: where it stands, what is wrong, what to do.

    ``line`` and ``column`` count from 1; ``severity`` is ``error`` (refused) or ``warning``.
    """

    rule: str
    message: str
    file: str
    line: int = 1
    column: int = 1
    remedy: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        """Render as ``file:line:column: message (remedy) [rule]``, the form editors can jump to."""
        remedy = f" {self.remedy}" if self.remedy else ""
        return f"{self.file}:{self.line}:{self.column}: {self.message}{remedy} [{self.rule}]"


class DefinitionError(SignalboxError):
    """A workflow file is refused; ``findings`` holds every fault found at once."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings


class RequestRefused(SignalboxError):
    """A request is refused. ``code`` is stable; ``status`` is the HTTP status."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "refused"

    def __init__(self, detail: str, *, code: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.problem = code or self.code


class InvalidRequest(RequestRefused):
    """The request's form or content is wrong."""

    status = 400
    code = "invalid_request"


class Unauthenticated(RequestRefused):
    """No valid bearer token."""

    status = 401
    code = "unauthenticated"


class Unverified(RequestRefused):
    """No such webhook, or no valid signature: which of them is not told."""

    status = 401
    code = "unverified"

    def __init__(self) -> None:
        super().__init__(
            "There is no such webhook, or the request is not signed for it: webhook-id, webhook-timestamp (at most "
            "five minutes away) and webhook-signature as Standard Webhooks says."
        )


class TenantBudgetExceeded(RequestRefused):
    """What the run may use does not fit what its tenant has left; nothing was taken."""

    status = 402
    code = "tenant_budget_exceeded"


class Forbidden(RequestRefused):
    """The caller's role does not allow it."""

    status = 403
    code = "forbidden"


class NotFound(RequestRefused):
    """What the request names does not exist for this tenant."""

    status = 404
    code = "not_found"


class MethodNotAllowed(RequestRefused):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_allowed"


class Conflict(RequestRefused):
    """The state of the run, or an earlier request, excludes this one."""

    status = 409
    code = "conflict"


class UnfitChanges(RequestRefused):
    """Changes to what is to be approved do not fit; ``field`` is the argument that they do not fit in, if it is one."""

    status = 422
    code = "invalid_changes"

    def __init__(self, detail: str, field: str = "") -> None:
        super().__init__(f"changes.{field}: {detail}" if field else detail)
        self.field = field
        self.told = detail


class UnfitInput(RequestRefused):
    """What a trigger makes of what has happened does not fit the workflow's input."""

    status = 422
    code = "unfit_input"


class StoreConflict(SignalboxError):
    """A conditional write lost against another writer: re-read and decide again."""


class StepFailure(SignalboxError):
    """One attempt failed.

    ``retry_after`` is the far side's own wish in seconds, if it gave one. ``usage`` is what the attempt used, where
    that was learned; without it the whole reservation stays charged. ``uncertain`` = the call may have had its effect
    all the same.
    """

    error_class: ClassVar[ErrorClass] = "permanent"
    pause: ClassVar[str | None] = None
    uncertain: bool = False
    held: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after: float | None = None, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.usage = usage


class StepTimeout(StepFailure):
    """The attempt's time was over."""

    error_class = "timeout"
    uncertain = True


class RateLimited(StepFailure):
    """The far side asks for fewer requests. A spend limit is permanent, not this."""

    error_class = "rate_limit"


class TransientFailure(StepFailure):
    """The far side failed in a way that usually passes."""

    error_class = "transient"
    uncertain = True


class ServiceHeld(TransientFailure):
    """A circuit breaker keeps the attempt from its call: nothing was sent, nothing is charged."""

    held = True


class Unreached(TransientFailure):
    """The far side could not be reached: nothing was sent, so nothing has happened."""

    uncertain = False


class InvalidOutput(StepFailure):
    """The answer does not fit the step's output schema."""

    error_class = "invalid_output"
    uncertain = True


class PermanentFailure(StepFailure):
    """Trying again cannot help."""

    error_class = "permanent"


class BrokenTool(PermanentFailure):
    """The tool itself failed in a way that nobody foresaw, before or after its effect."""

    uncertain = True


class UnclearAnswer(PermanentFailure):
    """The far side answered in a way that leaves open whether the call has had its effect."""

    uncertain = True


class TooLarge(PermanentFailure):
    """A value is larger than what is kept; the call that returned it may have had its effect all the same."""

    uncertain = True


class BudgetExceeded(StepFailure):
    """The reservation does not fit what is left; nothing was spent.

    ``level`` (step, run) and ``dimension`` say of which limit, ``wanted`` (nano-USD, tokens, steps, ms) how much.
    """

    error_class = "budget"

    def __init__(self, message: str, level: str = "", dimension: str = "", wanted: int = 0) -> None:
        super().__init__(message)
        self.level = level
        self.dimension = dimension
        self.wanted = wanted


class Rejected(StepFailure):
    """A person said no, or the gate expired."""

    error_class = "rejected"


class UnknownOutcome(StepFailure):
    """A call began and its outcome was never learned."""

    error_class = "unknown_outcome"
    uncertain = True


class PolicyViolation(StepFailure):
    """The risk policy refuses the call."""

    error_class = "policy"


class ApprovalMismatch(PolicyViolation):
    """What would run is not what a person approved. ``proposed`` is what would: its stored arguments."""

    pause = "approval_mismatch"

    def __init__(self, message: str, proposed: Any = None) -> None:
        super().__init__(message)
        self.proposed = proposed


class AttestationMismatch(PolicyViolation):
    """A stored output was not written by us."""

    pause = "attestation_mismatch"


def failure_named(error_class: str, message: str) -> StepFailure:
    """Return a failure of the class with this name; an unknown name is permanent."""
    kinds = {kind.error_class: kind for kind in StepFailure.__subclasses__()}
    return kinds.get(error_class, PermanentFailure)(message)
