"""``lambda.invoke``: a function of the account, asked and waited for."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Annotated, Any, cast

from typing_extensions import Doc, TypedDict  # pydantic wants this TypedDict before Python 3.12

from shared.errors import StepTimeout, TransientFailure, UnclearAnswer
from shared.tools.aws import Aws, classified
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.errors import StepFailure
    from shared.tools.means import Means

_LATE = frozenset({"Sandbox.Timedout"})
_DIED = frozenset({"Runtime.ExitError", "Runtime.OutOfMemory", "Sandbox.Failure", "Extension.Crash"})


class Returned(TypedDict):
    """What the function returned, and the version that did."""

    payload: Any
    version: str


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"lambda.invoke": Functions(means).invoke}


class Functions:
    """Invokes functions by these means. Raises StepFailure subclasses as ``Aws.ask`` does."""

    def __init__(self, means: Means) -> None:
        self._aws = Aws(means, "lambda.invoke", "lambda")

    def invoke(
        self,
        *,
        function: Annotated[str, Doc("Name or ARN of the function.")],
        payload: Annotated[Any, Doc("What the function gets as its event.")] = None,
        qualifier: Annotated[str | None, Doc("Version or alias; without it, the newest code.")] = None,
        call: Call,
    ) -> Returned:
        """Invoke a Lambda function, named by its name or ARN, and wait for what it returns."""
        context = {"custom": {"idempotency_key": call.idempotency_key}}
        answer = self._aws.ask(
            "invoke",
            call,
            FunctionName=function,
            Qualifier=qualifier,
            InvocationType="RequestResponse",
            ClientContext=base64.b64encode(json.dumps(context).encode()).decode(),
            Payload=json.dumps(payload, ensure_ascii=False).encode(),
        )
        with classified("lambda.invoke"):
            returned = _payload(answer["Payload"].read())
        if answer.get("FunctionError"):
            raise _failure(function, returned)
        return {"payload": returned, "version": str(answer.get("ExecutedVersion", ""))}


def _payload(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except (ValueError, RecursionError) as error:
        raise UnclearAnswer(f"lambda.invoke: what the function returned is no JSON: {error}") from None


def _failure(function: str, returned: Any) -> StepFailure:
    """Return the failure that a function's error means. It has run, so its effect is in doubt."""
    told = cast("dict[str, Any]", returned) if isinstance(returned, dict) else {}
    kind, message = str(told.get("errorType", "")), str(told.get("errorMessage", ""))[:500]
    text = f"The function {function} failed ({kind or 'unknown error'}): {message or 'no reason given'}"
    if kind in _LATE:
        return StepTimeout(text)
    return TransientFailure(text) if kind in _DIED else UnclearAnswer(text)
