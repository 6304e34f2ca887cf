"""Published versions, read from the definitions table and kept for the life of the process: they never change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shared.errors import NotFound
from shared.ledger.keys import latest_key, version_key
from shared.manifest import Manifest
from shared.runtime.host import Definitions, Published

if TYPE_CHECKING:
    from shared.ports import Item, Key, Store


class DefinitionTable(Definitions):
    """Versions by number; ``store`` is the definitions table."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, int], Published] = {}

    def manifest(self, workflow: str, version: int) -> Manifest:
        """Return a version's manifest. Raises NotFound when it is not published."""
        known = self._known.get((workflow, version))
        return self._version(workflow, version).manifest if known is None else known.manifest

    def published(self, workflow: str, version: int | None = None) -> Published:
        """Return a version that can be started, or the latest. Raises NotFound when there is none."""
        number = version or self.latest(workflow)
        known = self._known.get((workflow, number)) or self._version(workflow, number)
        if not known.machine:
            raise NotFound(
                f"Version {number} of {workflow} was pruned: it had served no open run for long. "
                "Start or resume with another one, or deploy that definition again.",
                code="version_pruned",
            )
        return known

    def _version(self, workflow: str, number: int) -> Published:
        known = self._known[workflow, number] = _published(self.item(workflow, number))
        return known

    def latest(self, workflow: str) -> int:
        """Return the number of the newest version. Raises NotFound when the workflow is not published, or no more."""
        latest = self._read(latest_key(workflow), f"workflow {workflow}")
        if latest.get("retired"):
            raise NotFound(
                f"Workflow {workflow} is not deployed any more. Its versions up to {latest['version']} can be started "
                "by their numbers until they are pruned.",
                code="workflow_retired",
            )
        return int(latest["version"])

    def item(self, workflow: str, version: int) -> Item:
        """Return a version's item with its definition text. Raises NotFound when it is not published."""
        return self._read(version_key(workflow, version), f"version {version} of {workflow}")

    def _read(self, key: Key, what: str) -> Item:
        item = self._store.read([key]).get(key)
        if item is None:
            raise NotFound(
                f"There is no {what}. Put its file into workflows/ and run `signalbox up`, or `signalbox deploy`.",
                code="unknown_workflow",
            )
        return item


def _published(item: dict[str, Any]) -> Published:
    return Published(
        workflow=item["workflow"],
        version=int(item["version"]),
        hash=item["hash"],
        machine="" if item.get("pruned") else item["version_arn"],
        manifest=Manifest.from_json(json.loads(item["manifest"])),
    )
