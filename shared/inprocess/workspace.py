"""The in-process host's place on the disk, and its ports: ``runs.db``, its key, the blobs and the locks beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.blobs.files import FileBlobs
from shared.budget.history import count, read
from shared.clock import SystemClock
from shared.errors import NotFound, PermanentFailure, StoreConflict
from shared.inprocess import farside
from shared.inprocess.engine import InProcess
from shared.inprocess.farside import FarSide, KeepingStore
from shared.inprocess.handlers import Handlers
from shared.inprocess.journal import AwayModels, AwayTools, LocalGateHost, LocalStepHost
from shared.inprocess.locks import RunLocks
from shared.inprocess.tick import TickStore
from shared.ledger.definitions import DefinitionTable
from shared.ledger.keyfile import in_use, key_in
from shared.ledger.keys import latest_key, version_key
from shared.ledger.records import Head, Run, Step, run_partition
from shared.ledger.seal import Seal
from shared.ledger.sqlite import SqliteStore, StoreUnusable
from shared.ports import Engine, Key, Mail, Write
from shared.runtime.breaker import Breakers
from shared.runtime.host import Host
from shared.runtime.runs import bring_up
from shared.secretstore.local import EnvironmentSecrets
from shared.settings import Person

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.budget.history import Usage
    from shared.compiler import Compiled
    from shared.ledger.records import Gate
    from shared.ports import Execution, Message, Models, Tools
    from shared.runtime.host import Published

TENANT = "local"
MACHINE = "in-process"
_RUNS_SEARCHED = 50


class Workspace:
    """Everything that is kept in and beside the file ``path``. Make one a process and file."""

    def __init__(self, path: Path) -> None:
        self.store = _sealed_store(path)
        self.ticks = TickStore(self.store)
        self.blobs = FileBlobs(path.with_name(f"{path.name}-blobs"))
        self.locks = RunLocks(path.with_name(f"{path.name}-locks"))
        self.clock = SystemClock()
        self.definitions = DefinitionTable(self.store)

    def close(self) -> None:
        """Close the files; locks go back."""
        self.store.close()
        self.locks.close()

    def engine(self, workers: int) -> InProcess:
        """Return an engine for this store's runs."""
        return InProcess(
            workers=workers,
            tenant=TENANT,
            acquire=self.locks.acquire,
            release=self.locks.release,
            changed=self.store.changed_elsewhere,
            ticks=self.ticks,
        )

    def ports(self, engine: Engine) -> dict[str, Any]:
        """Return the ports that every host needs."""
        return {
            "store": self.store,
            "blobs": self.blobs,
            "clock": self.clock,
            "engine": engine,
            "definitions": self.definitions,
        }

    def handlers(self, engine: InProcess, models: Models, tools: Tools) -> Handlers:
        """Return what performs the steps."""
        ports: dict[str, Any] = {**self.ports(engine), "store": self.ticks}
        models, tools = AwayModels(models, engine.hub), AwayTools(tools, engine.hub)
        secrets = EnvironmentSecrets()
        people: dict[str, Any] = {"mail": NoMail(), "letters": _no_letter, "approvers": Anybody(), "ends": True}
        gates = LocalGateHost(**ports, **people, secrets=secrets)
        # Not through ticks: these hold runs' records back, and would have to write them for every look at a breaker.
        breakers = Breakers(self.store, self.clock)
        steps = LocalStepHost(**ports, models=models, tools=tools, secrets=secrets, breakers=breakers)
        return Handlers(steps, gates)

    def host(self, engine: Engine, side: FarSide | None = None) -> Host:
        """Return what starts and looks at runs; ``side`` is kept with those that are started."""
        ports = self.ports(engine)
        if side:
            ports["store"] = KeepingStore(self.store, side)
        return Host(**ports)

    def side(self, run: str) -> FarSide | None:
        """Return where a run's calls go, a child's where its parent's do; None = that is not kept. Raises NotFound."""
        return farside.read(self.store, TENANT, self._root(run))

    def keep_side(self, run: str, side: FarSide) -> None:
        """Keep where a run's calls go from now on. The caller drives it. Raises NotFound."""
        farside.write(self.store, TENANT, self._root(run), side)

    def _root(self, run: str) -> str:
        while parent := self.facts(run).parent:
            run = parent.split("|", 1)[0]
        return run

    def publish(self, compiled: Compiled, file: Path) -> Published:
        """Keep a compiled file as a version, unless it is the newest one already. Runs stay with their version."""
        while True:
            try:
                return self._publish(compiled, file)
            except StoreConflict:  # another process publishes the same workflow: look again
                continue

    def _publish(self, compiled: Compiled, file: Path) -> Published:
        name, key = compiled.name, latest_key(compiled.name)
        latest = self.store.read([key]).get(key)
        if latest and latest["hash"] == compiled.hash:
            return self.definitions.published(name, int(latest["version"]))
        number = int(latest["version"]) + 1 if latest else 1
        facts = {"workflow": name, "version": number, "hash": compiled.hash}
        version = facts | {
            "version_arn": MACHINE,
            "manifest": json.dumps(compiled.manifest.to_json()),
            "definition": compiled.source,
            "published_at": self.clock.now(),
            "file": str(file.resolve()),
        }
        writes = [Write(version_key(name, number), version, None), Write(key, facts, latest["rev"] if latest else None)]
        self.store.commit(writes)
        return self.definitions.published(name, number)

    def file_of(self, run: str) -> str:
        """Return the workflow file that a run was last run from, of a child the one beside it. Raises NotFound."""
        facts, side = self.facts(run), self.side(run)
        if side is None or not side.file:
            return str(self.definitions.item(facts.workflow, facts.version)["file"])
        same = facts.workflow == self.facts(self._root(run)).workflow
        return side.file if same else str(Path(side.file).with_name(f"{facts.workflow}.yaml"))

    def facts(self, run: str) -> Run:
        """Return a run's facts. Raises NotFound."""
        key = Key(run_partition(TENANT, run), "RUN")
        item = self.store.read([key]).get(key)
        if item is None:
            raise NotFound("There is no such run.")
        return Run.from_item(item)

    def has_ended(self, run: str) -> bool:
        """Tell whether a run has ended."""
        return self._head(run).ended is not None

    def interrupted(self, published: Published, digest: str) -> str | None:
        """Return the newest unfinished run of this version with this input that no process drives."""
        found = (run.id for run in self._unfinished(published, digest) if run.version == published.version)
        return next((run for run in found if self.locks.is_free(run)), None)

    def under_way(self, published: Published, digest: str) -> str | None:
        """Return the newest unfinished run of this version with this input that another process drives."""
        found = (run.id for run in self._unfinished(published, digest) if run.version == published.version)
        return next((run for run in found if not self.locks.is_free(run)), None)

    def left_behind(self, published: Published, digest: str) -> list[Run]:
        """Return the unfinished runs of other versions with this input that no process drives, newest first."""
        found = self._unfinished(published, digest)
        return [run for run in found if run.version != published.version and self.locks.is_free(run.id)]

    def has_changed_something(self, run: str) -> bool:
        """Tell whether a run, or one below it, has made a call that may have changed something outside."""
        steps = [Step.from_item(item) for item in self.store.query(run_partition(TENANT, run), "STEP#")]
        if any(step.changes_something for step in steps):
            return True
        return any(self.has_changed_something(step.child) for step in steps if step.child)

    def _unfinished(self, published: Published, digest: str) -> Iterator[Run]:
        for run in self._newest(published.workflow):
            if run.input.digest == digest and not run.parent and not self._head(run.id).ended:
                yield run

    def _newest(self, workflow: str) -> Iterator[Run]:
        value = f"TENANT#{TENANT}#WORKFLOW#{workflow}"
        return map(Run.from_item, self.store.index("by_workflow", value, limit=_RUNS_SEARCHED))

    def refresh_lists(self) -> None:
        """Bring the list view up to the heads. On AWS the table's stream does that; here, whoever wants a list."""
        for state in ("pending", "running", "waiting_for_human", "paused"):
            for item in self.store.index("by_state", f"TENANT#{TENANT}#STATE#{state}", limit=0):
                head = self._head(str(item["id"]))
                if int(item.get("projected", 0)) < head.rev:
                    with suppress(StoreConflict):  # somebody else does it
                        bring_up(self.store, item["pk"], head)

    def history(self, workflow: str) -> tuple[Usage, ...]:
        """Return what attempts of a workflow's steps have used, after counting the newest runs that have ended."""
        for run in self._newest(workflow):
            head = self._head(run.id)
            if head.ended and run.counted < head.seq:
                count(self.store, run_partition(TENANT, run.id))
        return read(self.store, TENANT, workflow)

    def _head(self, run: str) -> Head:
        key = Key(run_partition(TENANT, run), "HEAD")
        return Head.from_item(self.store.read([key])[key])


def _sealed_store(path: Path) -> SqliteStore:
    """Return the store at ``path``, which seals by the key in the file beside it. Raises StoreUnusable."""
    place = path.with_name(f"{path.name}-key")
    try:
        key = key_in(place)
        store = SqliteStore(path, Seal.of(key.text))
        if key.is_new:
            store.seal_all()
            in_use(place, key)
    except (OSError, ValueError) as error:
        raise StoreUnusable(f"{place} cannot be used as the key of runs: {error}.") from error
    return store


class Anybody(Mapping[str, tuple[Person, ...]]):
    """Whoever sits at this machine may decide for every role. Nobody is listed, so nobody is written to."""

    def __getitem__(self, role: str) -> tuple[Person, ...]:
        """Return one person for any role."""
        return (Person(role, role[:2].upper(), f"{role}@localhost"),)

    def __iter__(self) -> Iterator[str]:
        """No role is listed."""
        return iter(())

    def __len__(self) -> int:
        """No role is listed."""
        return 0


class NoMail(Mail):
    """This host writes no mail: gates are answered in the terminal."""

    def send(self, message: Message) -> None:
        """Refuse. Raises PermanentFailure."""
        raise PermanentFailure(f"This host sends no mail; {message.to} was to get one.")


def _no_letter(gate: Gate, run: Run, person: Person, shown: Mapping[str, Any]) -> Message:  # noqa: ARG001 - the port's form
    raise PermanentFailure(f"This host writes no letters; {person.email} was to get one about {gate.path}.")


class Elsewhere(Engine):
    """The engine of a command that only looks at runs or decides: what it records is found by who drives the run."""

    slots = False

    def start(self, machine: str, name: str, data: Mapping[str, Any]) -> None:
        """Leave it to the process that drives the run."""

    def describe(self, machine: str, name: str) -> Execution | None:
        """Return None: the process that drives the run knows."""

    def succeed(self, token: str, output: Mapping[str, Any]) -> bool:  # noqa: ARG002 - the port's form
        """Leave it to the process that drives the run. True: the answer stands in the records."""
        return True

    def fail(self, token: str, error: str, cause: str) -> bool:  # noqa: ARG002 - the port's form
        """Leave it to the process that drives the run. True: the answer stands in the records."""
        return True
