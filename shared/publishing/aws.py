"""Publishing's adapters: Step Functions, S3, and the answer that CloudFormation waits for."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from shared.errors import Conflict
from shared.publishing.rules import Assets, Machines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SECONDS = 20
# CloudFormation refuses answers above 4 KiB.
_LONGEST_REASON = 1000


class StepFunctionsMachines(Machines):
    """State machines on Step Functions. ``client`` is a boto3 Step Functions client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def definition(self, machine_arn: str) -> str:
        """Return the machine's ASL as deployed."""
        return str(self._client.describe_state_machine(stateMachineArn=machine_arn)["definition"])

    def publish(self, machine_arn: str, revision: str, description: str) -> str:
        """Publish exactly this revision. AWS answers a repetition with the version that exists."""
        try:
            answer = self._client.publish_state_machine_version(
                stateMachineArn=machine_arn,
                revisionId=revision,
                description=description,
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConflictException":
                raise Conflict(f"publish {machine_arn}: revision {revision} is not current. Deploy again.") from error
            raise
        return str(answer["stateMachineVersionArn"])

    def forget(self, version_arn: str) -> None:
        """Delete a version; executions that run on it go on. Deleting it again is harmless."""
        self._client.delete_state_machine_version(stateMachineVersionArn=version_arn)

    def remove(self, machine_arn: str) -> None:
        """Delete a machine, which ends its executions. Deleting it again is harmless."""
        self._client.delete_state_machine(stateMachineArn=machine_arn)


class S3Assets(Assets):
    """Assets in S3. ``client`` is a boto3 S3 client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def text(self, bucket: str, key: str) -> str:
        """Return an object's content as text."""
        return self._client.get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8")


def answer(
    event: Mapping[str, Any],
    *,
    resource: str,
    data: Mapping[str, Any],
    reason: str | None = None,
    put: Callable[[str, bytes], None] | None = None,
) -> None:
    """Tell CloudFormation how the custom resource fared; ``reason`` given = it failed.

    ``put`` sends the body to a URL; the default uses HTTP PUT with a time-out of 20 s.
    """
    body = {
        "Status": "SUCCESS" if reason is None else "FAILED",
        "Reason": (reason or "published")[:_LONGEST_REASON],
        "PhysicalResourceId": event.get("PhysicalResourceId") or resource,
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "Data": dict(data),
    }
    (put or _put)(event["ResponseURL"], json.dumps(body).encode())


def _put(url: str, body: bytes) -> None:
    # The URL is signed for an empty content type. Its host is CloudFormation's own, its scheme is checked.
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and (parts.scheme, parts.hostname) not in {("http", "localhost"), ("http", "127.0.0.1")}:
        raise ValueError(f"ResponseURL {url[:40]!r} is neither HTTPS nor this machine")
    request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})  # noqa: S310 - checked
    with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310 - checked above
        pass
