"""Public fakes for every port: in memory, deterministic, with the same conditions as the real ones."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.errors import NotFound, PermanentFailure, StoreConflict
from shared.ledger.keys import INDEXES
from shared.models.prices import price_of
from shared.ports import (
    Blobs,
    Clock,
    DeadLetters,
    Engine,
    Events,
    Execution,
    Item,
    Key,
    Mail,
    Message,
    ModelReply,
    ModelRequest,
    Models,
    Secrets,
    Store,
    Tools,
    Usage,
)
from shared.runtime.host import Definitions, Published

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.manifest import Manifest
    from shared.ports import Announcement, Write
    from shared.tools.registry import Call

TRANSACTION_LIMIT = 100
"""Items. Source: DynamoDB quotas, "Transactions"."""


class MemoryStore(Store):
    """A store in a dict. ``before_commit`` is called with the writes before each transaction, to inject faults."""

    def __init__(self) -> None:
        self.items: dict[Key, Item] = {}
        self.before_commit: Callable[[Sequence[Write]], None] = lambda _: None
        self._lock = threading.RLock()

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the items that exist."""
        with self._lock:
            return {key: dict(self.items[key]) for key in keys if key in self.items}

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Item]:
        """Return the partition's items under ``prefix`` above ``after``, in order."""
        with self._lock:
            keys = sorted(key for key in self.items if key.pk == pk and key.sk.startswith(prefix) and key.sk > after)
            return [dict(self.items[key]) for key in (keys[:limit] if limit else keys)]

    def index(self, name: str, value: str, *, limit: int, before: str = "") -> list[Item]:
        """Return the newest items of an index, newest first."""
        partition, sort = INDEXES[name]
        with self._lock:
            found = [dict(item) for item in self.items.values() if item.get(partition) == value]
        found = [item for item in found if not before or item[sort] < int(before)]
        return sorted(found, key=lambda item: item[sort], reverse=True)[: limit or None]

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none. Raises StoreConflict when a condition does not hold."""
        if len(writes) > TRANSACTION_LIMIT:
            raise ValueError(f"{len(writes)} writes in one transaction; DynamoDB takes {TRANSACTION_LIMIT}")
        self.before_commit(writes)
        with self._lock:
            for write in writes:
                known = self.items.get(write.key)
                if (known["rev"] if known else None) != write.expected:
                    raise StoreConflict(f"{write.key} has another revision than {write.expected}")
            for write in writes:
                place = {"pk": write.key.pk, "sk": write.key.sk, "rev": (write.expected or 0) + 1}
                self.items[write.key] = {**write.item, **place}


class MemoryBlobs(Blobs):
    """Blobs in a dict."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, tenant: str, digest: str, data: bytes) -> str:
        """Store ``data``."""
        key = f"TENANT/{tenant}/blobs/{digest}"
        self.objects[key] = data
        return key

    def get(self, key: str) -> bytes:
        """Return the content. Raises PermanentFailure when it is gone."""
        if key not in self.objects:
            raise PermanentFailure(f"The stored object {key} is gone.")
        return self.objects[key]


class FrozenClock(Clock):
    """A clock that moves only when told, or by sleeping. ``random`` (0 to 1) decides all jitter."""

    def __init__(self, now: int = 1_790_000_000_000, random: float = 0.5) -> None:
        self.time = now
        self.random = random

    def now(self) -> int:
        """Return milliseconds since the epoch."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self.time += int(seconds * 1000)

    def jitter(self, upper: float) -> float:
        """Return the fixed share of ``upper``."""
        return upper * self.random


@dataclass
class FakeEngine(Engine):
    """Remembers executions and answers; ``gone`` are tokens nobody waits for, ``ended`` executions that ended."""

    executions: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    answers: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[tuple[str, str, dict[str, Any]]])
    gone: set[str] = field(default_factory=set[str])
    ended: dict[tuple[str, str], Execution] = field(default_factory=dict[tuple[str, str], Execution])

    def start(self, machine: str, name: str, data: Mapping[str, Any]) -> None:
        """Remember the execution, once a name."""
        self.executions.setdefault((machine, name), dict(data))

    def describe(self, machine: str, name: str) -> Execution | None:
        """Return how the execution ended, else that it runs."""
        running = Execution("running") if (machine, name) in self.executions else None
        return self.ended.get((machine, name), running)

    def succeed(self, token: str, output: Mapping[str, Any]) -> bool:
        """Remember the answer."""
        return self._answer(token, "success", dict(output))

    def fail(self, token: str, error: str, cause: str) -> bool:
        """Remember the failure."""
        return self._answer(token, "failure", {"error": error, "cause": cause})

    def _answer(self, token: str, kind: str, data: dict[str, Any]) -> bool:
        self.answers.append((token, kind, data))
        if token in self.gone:
            return False
        self.gone.add(token)
        return True


class FakeModels(Models):
    """Answers from a function, with a text or a whole reply (whose usage is counted here); counts prompts by words."""

    def __init__(self, answer: Callable[[ModelRequest], str | ModelReply]) -> None:
        self._answer = answer
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the function's answer."""
        self.requests.append(request)
        given = self._answer(request)
        reply = ModelReply(given, Usage()) if isinstance(given, str) else given
        usage = price_of(request.model).usage(_words(request), len(f"{reply.text} {list(reply.calls) or ''}".split()))
        return reply._replace(usage=usage)

    def ceiling(self, request: ModelRequest, *, exact: bool = False) -> Usage:
        """Return the bound in bytes, or exactly by words."""
        tokens = _words(request) if exact else len(f"{request.system}{request.prompt}{_said(request)}".encode())
        return price_of(request.model).usage(tokens, request.max_tokens)


def _words(request: ModelRequest) -> int:
    return len(f"{request.system} {request.prompt} {_said(request)}".split())


def _said(request: ModelRequest) -> str:
    return f"{list(request.tools)} {list(request.turns)}" if request.tools else ""


class FakeSecrets(Secrets):
    """Secrets by name as their versions, oldest first; all tenants have the same."""

    def __init__(self, **versions: Sequence[str]) -> None:
        self.versions = {name: list(values) for name, values in versions.items()}

    def version(self, tenant: str, name: str) -> str:  # noqa: ARG002 - the port's form
        """Return ``v`` and the number of the newest."""
        if name not in self.versions:
            raise PermanentFailure(f"There is no secret {name}.")
        return f"v{len(self.versions[name])}"

    def value(self, tenant: str, name: str, version: str) -> str:  # noqa: ARG002 - the port's form
        """Return that version's value."""
        return self.versions[name][int(version[1:]) - 1]


class FakeTools(Tools):
    """Tools by name as functions of arguments and call; remembers every call.

    ``described`` is what servers say of theirs; ``asked`` are the names for which they were asked.
    """

    def __init__(self, functions: Mapping[str, Callable[[dict[str, Any], Call], Any]]) -> None:
        self.described: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, ...]] = []
        self._functions = functions
        self.calls: list[tuple[str, dict[str, Any], Call]] = []
        self.costs: dict[str, int] = {}

    def cost(self, name: str) -> int:
        """Return the cost set for the tool, else nothing."""
        return self.costs.get(name, 0)

    def offers(self, names: Sequence[str], call: Call) -> dict[str, dict[str, Any]]:  # noqa: ARG002 - the port's form
        """Return what was set. Raises PermanentFailure for a tool that nothing was set for."""
        self.asked.append(tuple(names))
        if not self.described.keys() >= set(names):
            raise PermanentFailure(f"Nobody describes {names}.")
        return {name: self.described[name] for name in names}

    def invoke(self, name: str, arguments: Mapping[str, Any], call: Call) -> Any:
        """Call the function."""
        self.calls.append((name, dict(arguments), call))
        return self._functions[name](dict(arguments), call)


class FixedDefinitions(Definitions):
    """Manifests by workflow name, all of version 1."""

    def __init__(self, *manifests: Manifest) -> None:
        self._published = {
            manifest.workflow: Published(
                manifest.workflow, 1, manifest.hash, f"machine:{manifest.workflow}:1", manifest
            )
            for manifest in manifests
        }

    def manifest(self, workflow: str, version: int) -> Manifest:
        """Return the manifest."""
        return self.published(workflow, version).manifest

    def published(self, workflow: str, version: int | None = None) -> Published:
        """Return the version. Raises NotFound for an unknown workflow or any version but 1."""
        if workflow not in self._published or version not in {None, 1}:
            raise NotFound(f"There is no version {version or 1} of {workflow}.", code="unknown_workflow")
        return self._published[workflow]


class Outbox(Mail):
    """Keeps mail instead of sending it. ``failure`` is raised while it is set."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.failure: Exception | None = None

    def send(self, message: Message) -> None:
        """Keep the mail."""
        if self.failure:
            raise self.failure
        self.messages.append(message)


class LetterBox(DeadLetters):
    """Keeps dead letters in a list. ``failure`` is raised while it is set."""

    def __init__(self) -> None:
        self.letters: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.failure: Exception | None = None

    def put(self, delivered: Mapping[str, Any], about: Mapping[str, str]) -> None:
        """Keep the letter."""
        if self.failure:
            raise self.failure
        self.letters.append((dict(delivered), dict(about)))


class Bulletin(Events):
    """Keeps announcements instead of publishing them. ``failure`` is raised while it is set."""

    def __init__(self) -> None:
        self.announced: list[Announcement] = []
        self.failure: Exception | None = None

    def announce(self, announcements: Sequence[Announcement]) -> None:
        """Keep them."""
        if self.failure:
            raise self.failure
        self.announced += announcements
