"""Secrets of runs in this process: environment variables such as ``SIGNALBOX_SECRET_ERP_TOKEN``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shared.errors import PermanentFailure
from shared.ids import sha256
from shared.ports import Secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "SIGNALBOX_SECRET_"


class EnvironmentSecrets(Secrets):
    """A version is a digest of the value: another value is another version."""

    def __init__(self, given: Mapping[str, str] = os.environ) -> None:
        self._given = given

    def version(self, tenant: str, name: str) -> str:  # noqa: ARG002 - all runs of this process are one tenant's
        """Return what tells this value from others. Raises PermanentFailure when the variable is not set."""
        return sha256(self._read(name).encode())[:12]

    def value(self, tenant: str, name: str, version: str) -> str:
        """Return the value. Raises PermanentFailure when the variable holds another one by now, or none."""
        if self.version(tenant, name) != version:
            raise PermanentFailure(f"{PREFIX}{name.upper()} has changed since this call was decided. Set it back.")
        return self._read(name)

    def _read(self, name: str) -> str:
        value = self._given.get(f"{PREFIX}{name.upper()}")
        if not value:
            how = f"Set the environment variable {PREFIX}{name.upper()} and start the command again."
            raise PermanentFailure(f"There is no secret {name}. {how}")
        return value
