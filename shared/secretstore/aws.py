"""Tenants' secrets in AWS Secrets Manager, each under its tenant's name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from shared.errors import PermanentFailure, TransientFailure
from shared.ports import Secrets

if TYPE_CHECKING:
    from collections.abc import Callable

FRESH = 30.0
"""Seconds for which the newest version of a secret is taken to be still the newest."""
_GONE = frozenset({"ResourceNotFoundException", "InvalidRequestException"})


def secret_id(tenant: str, environment: str, name: str) -> str:
    """Return the name under which Secrets Manager keeps a tenant's secret."""
    return f"TENANT/{tenant}/signalbox-{environment}/{name}"


class SecretsManager(Secrets):
    """``client`` is boto3's, ``environment`` the deployment's name. Values are kept for this process's life."""

    def __init__(self, client: Any, environment: str, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._environment, self._now = client, environment, now
        self._newest: dict[tuple[str, str], tuple[float, str]] = {}
        self._values: dict[tuple[str, str, str], str] = {}

    def version(self, tenant: str, name: str) -> str:
        """Return the id of the current version.

        Raises PermanentFailure when there is no such secret, TransientFailure when AWS cannot say.
        """
        read, newest = self._newest.get((tenant, name), (0.0, ""))
        if newest and self._now() - read < FRESH:
            return newest
        stages = self._ask("describe_secret", tenant, name)["VersionIdsToStages"]
        newest = next(version for version, names in stages.items() if "AWSCURRENT" in names)
        self._newest[tenant, name] = self._now(), newest
        return newest

    def value(self, tenant: str, name: str, version: str) -> str:
        """Return a version's text. Raises PermanentFailure when it is gone, TransientFailure when AWS cannot say."""
        key = (tenant, name, version)
        if key not in self._values:
            answer = self._ask("get_secret_value", tenant, name, VersionId=version)
            if "SecretString" not in answer:
                raise PermanentFailure(f"The secret {name} of tenant {tenant} is no text.")
            self._values[key] = answer["SecretString"]
        return self._values[key]

    def _ask(self, operation: str, tenant: str, name: str, **more: str) -> Any:
        place = secret_id(tenant, self._environment, name)
        try:
            return getattr(self._client, operation)(SecretId=place, **more)
        except ClientError as error:
            if error.response["Error"]["Code"] in _GONE:
                which = f", version {more['VersionId']}" if more else ""
                remedy = f"Put one: signalbox tenants secrets put {tenant} {name}"
                raise PermanentFailure(f"Tenant {tenant} has no secret {name}{which}. {remedy}") from None
            failure = TransientFailure(f"Secrets Manager does not tell the secret {name}: {error}")
            failure.uncertain = False  # the call that it is for has not begun
            raise failure from error
