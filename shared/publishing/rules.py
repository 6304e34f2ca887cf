"""Publishing a workflow: one immutable version a definition and code, registered in the definitions table.

Items of partition ``WORKFLOW#<name>``: ``VERSION#<n>`` (n of six digits, from 1), ``RELEASE#<digest>`` (which version a
release became, so that publishing is idempotent) and ``LATEST`` (the version that new runs take).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from shared.errors import InvalidRequest, StoreConflict
from shared.ledger.keys import latest_key, version_key, workflow_partition
from shared.ports import Item, Key, Write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ports import Clock, Store

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Release:
    """What is to be published. ``revision`` is the machine's revision that was deployed; ``hash`` the definition's."""

    workflow: str
    hash: str
    machine_arn: str
    revision: str
    bucket: str
    key: str

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        """Read a release from the custom resource's properties. Raises InvalidRequest naming what is missing."""
        names = ("Workflow", "Hash", "MachineArn", "RevisionId", "AssetBucket", "AssetKey")
        missing = [name for name in names if not properties.get(name)]
        if missing:
            raise InvalidRequest(
                f"publish: property {', '.join(missing)} is missing. Deploy the workflows stack again."
            )
        return cls(*(str(properties[name]) for name in names))


@dataclass(frozen=True, slots=True)
class Version:
    """A registered version. ``manifest`` is JSON text, ``published_at`` milliseconds since the epoch."""

    workflow: str
    version: int
    hash: str
    version_arn: str
    machine_arn: str
    manifest: str
    definition: str
    published_at: int


class Machines(Protocol):
    """State machines, as far as publishing needs them."""

    def definition(self, machine_arn: str) -> str:
        """Return the machine's ASL as deployed, with the function versions it calls."""
        ...

    def publish(self, machine_arn: str, revision: str, description: str) -> str:
        """Publish exactly this revision and return the version's ARN; again = the same ARN.

        Raises Conflict when the machine has moved on.
        """
        ...


class Assets(Protocol):
    """Deployed assets."""

    def text(self, bucket: str, key: str) -> str:
        """Return an object's content."""
        ...


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes releases. All parts are ports, so it runs against fakes as well as against AWS."""

    machines: Machines
    assets: Assets
    store: Store
    clock: Clock

    def publish(self, release: Release) -> Version:
        """Publish and register ``release``, or return the version it became before; it is then the latest.

        A release is the definition together with the function versions it calls: new code is a new version, since runs
        keep the code they started with. Publishing an earlier release again only makes that version the latest.
        """
        digest = self._digest(release)
        for _ in range(_TRIES):
            try:
                return self._known(release, digest) or self._register(release, digest)
            except StoreConflict:
                # Another deployment registered in between: look again, so that numbers stay gapless.
                self.clock.sleep(self.clock.jitter(0.2))
        raise StoreConflict(f"publish {release.workflow}: other deployments keep registering. Deploy again.")

    def retire(self, workflow: str, machine_arn: str) -> None:
        """Mark a workflow that is deployed no more: none of its versions is the one that new runs take.

        One that another machine serves by now is left as it is. Raises StoreConflict when others keep writing.
        """
        pointer = latest_key(workflow)
        for _ in range(_TRIES):
            latest = self.store.read([pointer]).get(pointer)
            if latest is None or latest["machine_arn"] != machine_arn or latest.get("retired"):
                return
            try:
                self.store.commit([Write(pointer, {**latest, "retired": self.clock.now()}, latest["rev"])])
            except StoreConflict:
                self.clock.sleep(self.clock.jitter(0.2))
            else:
                return
        raise StoreConflict(f"retire {workflow}: other deployments keep registering. Deploy again.")

    def _digest(self, release: Release) -> str:
        machine = self.machines.definition(release.machine_arn)
        return hashlib.sha256(f"{release.hash}\0{release.machine_arn}\0{machine}".encode()).hexdigest()

    def _known(self, release: Release, digest: str) -> Version | None:
        known, pointer = _release_key(release.workflow, digest), latest_key(release.workflow)
        items = self.store.read([known, pointer])
        if known not in items:
            return None
        place = version_key(release.workflow, items[known]["version"])
        item = self.store.read([place])[place]
        if item.get("pruned"):
            return None
        version = _version(item)
        latest = items.get(pointer)
        if latest is None or latest["version"] != version.version or latest.get("retired"):
            # The version is written too: who prunes it at the same moment then conflicts.
            needed = {name: value for name, value in item.items() if name != "retired"}
            self.store.commit([_latest(version, latest), Write(place, needed, item["rev"])])
        return version

    def _register(self, release: Release, digest: str) -> Version:
        pointer, known = latest_key(release.workflow), _release_key(release.workflow, digest)
        items = self.store.read([pointer, known])
        latest, pruned = items.get(pointer), items.get(known)
        version = self._publish(release, self._next_number(workflow_partition(release.workflow)))
        writes = [
            Write(version_key(release.workflow, version.version), asdict(version), expected=None),
            Write(known, {"version": version.version}, expected=pruned["rev"] if pruned else None),
            _latest(version, latest),
        ]
        self.store.commit(writes)
        return version

    def _next_number(self, pk: str) -> int:
        return max((item["version"] for item in self.store.query(pk, "VERSION#")), default=0) + 1

    def _publish(self, release: Release, number: int) -> Version:
        content = _content(self.assets.text(release.bucket, release.key), release)
        description = f"{release.workflow} version {number}, definition {release.hash[:12]}"
        return Version(
            workflow=release.workflow,
            version=number,
            hash=release.hash,
            version_arn=self.machines.publish(release.machine_arn, release.revision, description),
            machine_arn=release.machine_arn,
            manifest=content["manifest"],
            definition=content["definition"],
            published_at=self.clock.now(),
        )


def _release_key(workflow: str, digest: str) -> Key:
    return Key(workflow_partition(workflow), f"RELEASE#{digest}")


def _latest(version: Version, current: Item | None) -> Write:
    facts = {name: getattr(version, name) for name in ("workflow", "version", "hash", "version_arn", "machine_arn")}
    expected = None if current is None else current["rev"]
    return Write(latest_key(version.workflow), facts, expected=expected)


def _version(item: Item) -> Version:
    return Version(**{name: item[name] for name in Version.__dataclass_fields__})


def _content(text: str, release: Release) -> dict[str, str]:
    content = cast("dict[str, str]", json.loads(text))
    found = json.loads(content["manifest"]).get("hash")
    if found != release.hash:
        raise InvalidRequest(
            f"publish {release.workflow}: the asset holds definition {found}, not {release.hash}. Deploy again.",
        )
    return content
