"""Publishes the revision that was just deployed as an immutable version; CloudFormation calls it."""

from __future__ import annotations

import logging
from typing import Any

from functions import bootstrap
from shared.publishing.aws import answer
from shared.publishing.rules import Release

_LOG = logging.getLogger(__name__)


def handle(event: dict[str, Any], _context: object) -> None:
    """Publish on Create and Update. Delete retires the workflow; its runs still need its versions. Always answers."""
    try:
        data = _retire(event) if event["RequestType"] == "Delete" else _publish(event["ResourceProperties"])
    except Exception as error:  # noqa: BLE001 - whatever it is, CloudFormation would else wait for an hour
        _LOG.exception("publish failed")
        answer(event, resource=_resource(event), data={}, reason=f"{type(error).__name__}: {error}")
        return
    answer(event, resource=_resource(event), data=data)


def _publish(properties: dict[str, Any]) -> dict[str, Any]:
    version = bootstrap.publisher().publish(Release.of(properties))
    return {"Version": version.version, "VersionArn": version.version_arn}


def _retire(event: dict[str, Any]) -> dict[str, Any]:
    properties = event["ResourceProperties"]
    bootstrap.publisher().retire(properties["Workflow"], properties["MachineArn"])
    return {}


def _resource(event: dict[str, Any]) -> str:
    # Stable, so that an update is never taken for a replacement.
    return f"workflow-{event.get('ResourceProperties', {}).get('Workflow', event['LogicalResourceId'])}"
