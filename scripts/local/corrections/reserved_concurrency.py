"""CloudFormation ignores a function's ReservedConcurrentExecutions, so nothing bounds its processes."""

# ruff: noqa: SLF001 - it corrects private parts of the emulator

import importlib
from collections.abc import Callable
from typing import Any

from scripts.local.corrections.upstream import expect, lambda_service

NAME = "reserved_concurrency"


def apply() -> None:
    """Set it whenever a function is created or updated by a stack."""
    provisioners = importlib.import_module("ministack.services.cloudformation.provisioners")
    handlers = provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"]
    expect(NAME, "provisioners._lambda_create", holds=handlers["create"] is provisioners._lambda_create)
    for action in ("create", "update"):
        if action in handlers:
            handlers[action] = _reserving(handlers[action])


def _reserving(provision: Callable[..., Any]) -> Callable[..., Any]:
    def provisioned(*args: Any, **kwargs: Any) -> Any:
        result = provision(*args, **kwargs)
        properties: list[dict[str, Any]] = [a for a in args if isinstance(a, dict) and "Code" in a]
        record = lambda_service()._functions.get(result[0])
        if record is not None and properties:
            reserved = properties[-1].get("ReservedConcurrentExecutions")
            record["concurrency"] = None if reserved is None else int(reserved)
        return result

    return provisioned
