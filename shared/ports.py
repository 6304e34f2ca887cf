"""The ports: what the runtime needs from the world, as protocols. Fakes for all of them are in testing.py.

What passes through them are named tuples: every cold start would compile the methods of data classes anew.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from shared.errors import PermanentFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.tools.registry import Call

Item = dict[str, Any]


class Key(NamedTuple):
    """Primary key of an item: partition and sort key."""

    pk: str
    sk: str


class Write(NamedTuple):
    """One conditional put: ``item`` replaces the item that has revision ``expected``; None = no item may exist."""

    key: Key
    item: Item
    expected: int | None


class Store(Protocol):
    """Conditional, transactional item store. Every item carries a revision ``rev`` that each write raises by one."""

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the items that exist, read consistently."""
        ...

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Item]:
        """Return the partition's items whose sort key starts with ``prefix`` and is above ``after``, in order.

        ``limit`` 0 = all.
        """
        ...

    def index(self, name: str, value: str, *, limit: int, before: str = "") -> list[Item]:
        """Return an index's newest items for ``value``, newest first, older than the sort value ``before``."""
        ...

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none. Raises StoreConflict when a condition does not hold."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Let nobody else write meanwhile, where a store can do that: what is read inside stays true until written."""
        return nullcontext()


class Blobs(Protocol):
    """Content-addressed objects, each under its tenant's prefix."""

    def put(self, tenant: str, digest: str, data: bytes) -> str:
        """Store ``data`` and return its key. Storing the same content again is harmless."""
        ...

    def get(self, key: str) -> bytes:
        """Return the content. Raises PermanentFailure when it is gone."""
        ...


class Clock(Protocol):
    """Time and waiting; a fake makes both controllable."""

    def now(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def jitter(self, upper: float) -> float:
        """Return a random number between 0 and ``upper``."""
        ...


class Execution(NamedTuple):
    """How an execution stands: it is running, or how it ended, with what the engine says about why."""

    status: Literal["running", "succeeded", "failed", "timed_out", "aborted"]
    cause: str = ""


class Engine(Protocol):
    """The workflow engine: executions and task tokens.

    ``slots`` = its executions let a step of a crowded graph wait for a slot before it opens; else it bounds them.
    """

    slots: ClassVar[bool] = True

    def start(self, machine: str, name: str, data: Mapping[str, Any]) -> None:
        """Start an execution. Starting the same name again is success."""
        ...

    def describe(self, machine: str, name: str) -> Execution | None:
        """Return how an execution stands; None = none of this name has begun, as far as the engine remembers."""
        ...

    def succeed(self, token: str, output: Mapping[str, Any]) -> bool:
        """Answer a task token; False when nobody waits for it any more."""
        ...

    def fail(self, token: str, error: str, cause: str) -> bool:
        """Fail a task token; False when nobody waits for it any more."""
        ...

    def works(self, attempt: str) -> bool:  # noqa: ARG002 - the port's form
        """Tell whether a process is known to work at this attempt still, although its lease is over."""
        return False


class Usage(NamedTuple):
    """Tokens that a model request used, and their price in nano-USD."""

    input_tokens: int = 0
    output_tokens: int = 0
    usd: int = 0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


class Offer(NamedTuple):
    """A tool that a model may call: its name, what it does, the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Exchange(NamedTuple):
    """One earlier turn: what the model said, the calls it proposed, and what each came to.

    ``told`` is what the model is told about the turn besides, for example that it proposed too many calls.
    """

    text: str
    calls: Sequence[Proposal]
    results: Sequence[Result]
    told: str = ""


class Proposal(NamedTuple):
    """A call that a model proposes: the tool's name and its arguments, whatever the model says they are."""

    tool: str
    arguments: Any


class Result(NamedTuple):
    """What the model reads about one of its calls."""

    text: str
    failed: bool = False


class ModelRequest(NamedTuple):
    """One request to a model. ``schema`` asks for a JSON reply that fits it; ``timeout`` in seconds.

    ``tools`` are those that it may call, ``turns`` what has been said since the prompt.
    """

    model: str
    system: str
    prompt: str
    max_tokens: int
    timeout: float
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    tools: Sequence[Offer] = ()
    turns: Sequence[Exchange] = ()


class ModelReply(NamedTuple):
    """A model's answer: its text, what it used, and the calls that it proposes."""

    text: str
    usage: Usage
    stop_reason: str = "end_turn"
    calls: Sequence[Proposal] = ()


class Models(Protocol):
    """Model providers."""

    def complete(self, request: ModelRequest) -> ModelReply:
        """Send one request, without retries. Raises StepFailure subclasses; those carry ``usage`` when it is known."""
        ...

    def ceiling(self, request: ModelRequest, *, exact: bool = False) -> Usage:
        """Return the most this request can use.

        Without ``exact``, a bound made without asking anybody (a token is at least one byte); with it, counted by the
        provider.
        """
        ...


class Tools(Protocol):
    """Tools by name."""

    def cost(self, name: str) -> int:
        """Return what one call costs at most, in nano-USD."""
        ...

    def service(self, name: str, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002 - others look at them
        """Return what a call depends on: what degrades, and is left alone, as one."""
        return f"tool:{name}"

    def offers(self, names: Sequence[str], call: Call) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG002 - others ask
        """Return ``description`` and ``parameters`` of tools that only somebody else can describe.

        Raises StepFailure subclasses.
        """
        told = f"This host has no MCP servers: nobody describes {', '.join(names)}"
        raise PermanentFailure(f"{told}. Run it on a host that has, or take them out of the agent's `tools`.")

    def invoke(self, name: str, arguments: Mapping[str, Any], call: Call) -> Any:
        """Call the tool. Raises StepFailure subclasses."""
        ...


class Secrets(Protocol):
    """Values that only a call may know. Each has versions, so that what is approved and what is called are one."""

    def version(self, tenant: str, name: str) -> str:
        """Return the newest version. Raises PermanentFailure when there is no such secret."""
        ...

    def value(self, tenant: str, name: str, version: str) -> str:
        """Return a version's value. Raises PermanentFailure when it is gone."""
        ...

    def newest(self, tenant: str, name: str) -> str:
        """Return the newest version's value. Raises PermanentFailure when there is no such secret."""
        return self.value(tenant, name, self.version(tenant, name))


class Message(NamedTuple):
    """One mail in text and HTML."""

    to: str
    subject: str
    text: str
    html: str
    headers: Mapping[str, str]


class Mail(Protocol):
    """Outgoing mail."""

    def send(self, message: Message) -> None:
        """Send one mail. Raises TransientFailure or PermanentFailure."""
        ...


class DeadLetters(Protocol):
    """Where occurrences of triggers are kept that can never start a run."""

    def put(self, delivered: Mapping[str, Any], about: Mapping[str, str]) -> None:
        """Keep what was delivered, with what is said about it. Raises TransientFailure."""
        ...


class Announcement(NamedTuple):
    """Something that operators may want to hear of: ``kind`` is its detail-type, ``detail`` is plain JSON.

    ``resource`` names what it is about. It may be announced more than once; ``detail`` has the run and ``seq``.
    """

    kind: str
    resource: str
    detail: Mapping[str, Any]


class Events(Protocol):
    """The bus on which the deployment tells the account what operators may want to hear of."""

    def announce(self, announcements: Sequence[Announcement]) -> None:
        """Publish all of them. Raises TransientFailure when one is not taken: announce all of them again."""
        ...
