"""AWS as whoever runs a file may use it: with their own credentials, and only where a tool asks for it."""

from functools import cache
from typing import Any, cast


@cache
def client(service: str, timeout: float) -> Any:
    """A client that does not retry; `timeout` in seconds is that of an answer."""
    import boto3  # noqa: PLC0415 - half a second, only for tools that call AWS
    from botocore.config import Config  # noqa: PLC0415 - with it

    once: dict[str, Any] = {"mode": "standard", "total_max_attempts": 1}
    config = Config(retries=once, connect_timeout=3, read_timeout=timeout)
    return cast("Any", boto3).client(service, config=config)
