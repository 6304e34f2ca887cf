"""Starting runs, and sweeping, through their own functions on Lambda."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from shared.api.problems import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping


class _LambdaFunction:
    """Calls a function. ``client`` is a boto3 Lambda client, ``function`` an ARN."""

    hint = ""

    def __init__(self, client: Any, function: str) -> None:
        self._client = client
        self._function = function

    def __call__(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call the function and return its answer. Raises Unavailable when there is none."""
        try:
            answer = self._client.invoke(FunctionName=self._function, Payload=json.dumps(payload).encode())
            text = answer["Payload"].read()
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(self.hint) from error
        if answer.get("FunctionError"):
            raise Unavailable(self.hint) from RuntimeError(text.decode(errors="replace")[:1000])
        return cast("dict[str, Any]", json.loads(text))


class LambdaStart(_LambdaFunction):
    """Calls the version of ``start``: the same request with the same Idempotency-Key may be sent again."""

    hint = "The run was not confirmed. Send the request again with the same Idempotency-Key."


class LambdaSweep(_LambdaFunction):
    """Calls ``sweep``, which may be repeated."""

    hint = "The sweeper did not answer. Send the request again."
