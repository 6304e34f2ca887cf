"""Keys of the definitions table, which the publisher writes and everybody else reads; indexes of the runs table."""

from __future__ import annotations

from shared.ports import Key

INDEXES = {
    "by_workflow": ("tenant_workflow", "created"),
    "by_state": ("tenant_state", "created"),
    "pending": ("tenant_pending", "opened"),
}
"""Index of the runs table -> its partition key (text) and sort key (milliseconds since the epoch)."""
LATEST = "WORKFLOWS"
"""Partition that holds, for every published workflow, which version is its latest."""


def latest_key(workflow: str) -> Key:
    """Return the key of the item that says which version of ``workflow`` is the latest."""
    return Key(LATEST, f"NAME#{workflow}")


def workflow_partition(workflow: str) -> str:
    """Return the partition of a workflow's versions and releases."""
    return f"WORKFLOW#{workflow}"


def version_key(workflow: str, number: int) -> Key:
    """Return the key of a version: immutable once written."""
    return Key(workflow_partition(workflow), f"VERSION#{number:06d}")
