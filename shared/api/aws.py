"""Starting runs through the ``start`` function on Lambda."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from shared.api.problems import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping


class LambdaStart:
    """Calls the ``start`` function. ``client`` is a boto3 Lambda client, ``function`` the ARN of its version."""

    def __init__(self, client: Any, function: str) -> None:
        self._client = client
        self._function = function

    def __call__(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start a run and return the function's answer.

        Raises Unavailable when there is none: the same request with the same Idempotency-Key may be sent again.
        """
        try:
            answer = self._client.invoke(FunctionName=self._function, Payload=json.dumps(payload).encode())
            text = answer["Payload"].read()
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(_HINT) from error
        if answer.get("FunctionError"):
            raise Unavailable(_HINT) from RuntimeError(text.decode(errors="replace")[:1000])
        return cast("dict[str, Any]", json.loads(text))


_HINT = "The run was not confirmed. Send the request again with the same Idempotency-Key."
