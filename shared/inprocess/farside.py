"""Where a run's calls go: kept beside its records, so that whoever goes on with it makes them at the same place.

Secrets are not kept: of a setting that may hold one there is only the name, and whoever goes on gives it again.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from shared.ledger.records import Run
from shared.ports import Key, Store, Write
from shared.redaction import SHORTEST, redacted_text
from shared.settings import MCP_SERVERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from shared.ports import Item

MODELS_URL = "--models-url"
"""What the models' address is called among what is not kept."""
_SECRET = r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|KEY|CREDENTIALS?|AUTH|AUTHORIZATION|COOKIE|SIGNATURE|DSN|PAT"  # noqa: S105 - words
_NAME = re.compile(rf"(?:^|[_-]|API)(?:{_SECRET}|PASS|PW|PWD|JWT|PIN)S?(?:$|[_-])", re.IGNORECASE)
_CREDENTIALS = re.compile(r"://[^/\s\"']*@")
_TOLD = re.compile(rf"(?:{_SECRET}|SIG)(?:[\"']?\s*(?:=|:\s)|[\"']\s*:)|\b(?:Bearer|Basic)\s+\S", re.IGNORECASE)
_NAMED = re.compile(r'"secret"\s*:\s*"[a-z0-9_]*"')
_OPAQUE = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w+=~-]{20,}")


@dataclass(frozen=True, slots=True)
class FarSide:
    """What answers a run's calls.

    ``settings`` are the tools'. ``models`` = ``real`` (the provider), ``rehearsed`` (this process), or ``at`` the
    address ``models_url``; ``key`` = with the user's own key. ``erp`` = the stand-in is the ERP. ``withheld`` are the
    names of what is not kept. ``file`` is the workflow file, with the tools beside it.
    """

    settings: Mapping[str, str]
    models: Literal["real", "rehearsed", "at"]
    models_url: str = ""
    key: bool = False
    erp: bool = False
    withheld: tuple[str, ...] = ()
    file: str = ""

    def keepable(self, secrets: Iterable[str]) -> FarSide:
        """Return it without what may be a secret, or holds one of these."""
        known = [one for one in secrets if len(one) >= SHORTEST]
        held = {name for name, value in self.settings.items() if may_be_secret(name, value, known)}
        held |= {MODELS_URL} if may_be_secret("", self.models_url, known) else set()
        settings = {name: value for name, value in self.settings.items() if name not in held}
        url = "" if MODELS_URL in held else self.models_url
        return replace(self, settings=settings, models_url=url, withheld=tuple(sorted(held)))


def may_be_secret(name: str, value: str, known: Sequence[str] = ()) -> bool:
    """Tell whether a setting may hold a secret, by its name, its form, or since it holds one that is ``known``."""
    if name == MCP_SERVERS:  # it names secrets, and no URL in it holds credentials
        value = _NAMED.sub("", value)
    signs = _NAME.search(name) or _CREDENTIALS.search(value) or _TOLD.search(value) or _OPAQUE.fullmatch(value)
    return bool(signs) or redacted_text(value) != value or any(one in value for one in known)


def key_of(tenant: str, run: str) -> Key:
    """Return the key of what is kept of a run's far side: not among its records."""
    return Key(f"TENANT#{tenant}#FARSIDE#{run}", "FARSIDE")


def read(store: Store, tenant: str, run: str) -> FarSide | None:
    """Return what is kept for a run that was started by itself; None for one from before anything was."""
    key = key_of(tenant, run)
    item = store.read([key]).get(key)
    return None if item is None else _of(**item["side"])


def _of(withheld: Sequence[str], **side: Any) -> FarSide:
    return FarSide(**side, withheld=tuple(withheld))


def write(store: Store, tenant: str, run: str, side: FarSide) -> None:
    """Keep another far side for a run, which the caller alone drives."""
    key = key_of(tenant, run)
    item = store.read([key]).get(key)
    store.commit([Write(key, {"side": asdict(side)}, item["rev"] if item else None)])


class KeepingStore(Store):
    """A store that keeps the far side of each run that is created through it, in the same transaction."""

    def __init__(self, store: Store, side: FarSide) -> None:
        self._store, self._side = store, side

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Read from the store."""
        return self._store.read(keys)

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Item]:
        """Query the store."""
        return self._store.query(pk, prefix, after=after, limit=limit)

    def index(self, name: str, value: str, *, limit: int, before: str = "") -> list[Item]:
        """Look into an index of the store."""
        return self._store.index(name, value, limit=limit, before=before)

    def alone(self) -> AbstractContextManager[None]:
        """Let nobody else write to the store meanwhile."""
        return self._store.alone()

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes, and what is kept of the runs that they create, or none. Raises StoreConflict."""
        made = [Run.from_item(one.item) for one in writes if one.key.sk == "RUN" and one.expected is None]
        side = {"side": asdict(self._side)}
        self._store.commit([*writes, *(Write(key_of(run.tenant, run.id), side, None) for run in made)])
