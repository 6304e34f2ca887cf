"""A throttled Lambda reaches Step Functions as `Lambda.Unknown`; AWS says `Lambda.TooManyRequestsException`."""

from typing import Any

from scripts.local.corrections.upstream import rewrite, stepfunctions

NAME = "throttle_name"


def apply() -> None:
    """Name a throttle by its service error."""
    rewrite(
        NAME,
        stepfunctions(),
        "_call_lambda",
        ('body.get("errorType", "Lambda.Unknown")', "_lambda_error(body)"),
        names={"_lambda_error": _lambda_error},
    )


def _lambda_error(body: dict[str, Any]) -> str:
    if body.get("__type") == "TooManyRequestsException":
        return "Lambda.TooManyRequestsException"
    return str(body.get("errorType", "Lambda.Unknown"))
