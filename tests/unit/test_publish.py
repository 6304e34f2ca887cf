"""Publishing: exact revisions, idempotent numbers, and CloudFormation always gets its answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from shared.errors import Conflict, InvalidRequest, NotFound, StoreConflict
from shared.ledger.definitions import DefinitionTable
from shared.ledger.keys import latest_key
from shared.ports import Item, Key, Write
from shared.publishing.aws import S3Assets, StepFunctionsMachines, answer
from shared.publishing.rules import Publisher, Release

if TYPE_CHECKING:
    from collections.abc import Sequence

MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:invoice"


@dataclass
class MemoryStore:
    """A store in a dictionary. ``conflicts`` counts how many commits lose against another writer first."""

    items: dict[Key, Item] = field(default_factory=dict[Key, Item])
    conflicts: int = 0

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        return {key: self.items[key] for key in keys if key in self.items}

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Item]:
        found = [self.items[key] for key in sorted(self.items) if key.pk == pk and key.sk.startswith(prefix)]
        return found[:limit] if limit else found

    def index(self, name: str, value: str, *, limit: int, before: str = "") -> list[Item]:
        raise NotImplementedError

    def commit(self, writes: Sequence[Write]) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise StoreConflict("another writer")
        for write in writes:
            found = self.items.get(write.key)
            if (found and found["rev"]) != write.expected:
                raise StoreConflict(write.key.sk)
        for write in writes:
            self.items[write.key] = {
                **write.item,
                "pk": write.key.pk,
                "sk": write.key.sk,
                "rev": (write.expected or 0) + 1,
            }


@dataclass
class FakeMachines:
    """Machines with a current definition; publishing the same revision again gives the same version."""

    asl: str = '{"calls": "step:1"}'
    revision: str = "r1"
    published: dict[str, str] = field(default_factory=dict[str, str])

    def definition(self, machine_arn: str) -> str:
        return self.asl

    def publish(self, machine_arn: str, revision: str, description: str) -> str:
        if revision != self.revision:
            raise Conflict("moved on")
        return self.published.setdefault(revision, f"{machine_arn}:{len(self.published) + 1}")

    def deploy(self, asl: str, revision: str) -> None:
        self.asl, self.revision = asl, revision


@dataclass
class FakeAssets:
    """Assets whose key is the definition's hash."""

    def text(self, bucket: str, key: str) -> str:
        return json.dumps({"definition": f"workflow: invoice # {key}", "manifest": json.dumps({"hash": key})})


class FakeClock:
    """Time stands still; sleeping returns at once."""

    def now(self) -> int:
        return 1_700_000_000_000

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0

    def jitter(self, upper: float) -> float:
        return upper / 2


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def machines() -> FakeMachines:
    return FakeMachines()


@pytest.fixture
def publisher(store: MemoryStore, machines: FakeMachines) -> Publisher:
    return Publisher(machines=machines, assets=FakeAssets(), store=store, clock=FakeClock())


def release(hash_: str = "aaa", revision: str = "r1", **changes: str) -> Release:
    values = {"workflow": "invoice", "machine_arn": MACHINE, "bucket": "assets", "key": hash_, **changes}
    return Release(hash=hash_, revision=revision, **values)


def numbers(store: MemoryStore) -> list[str]:
    return sorted(key.sk for key in store.items if key.sk.startswith("VERSION#"))


def latest(store: MemoryStore) -> Item:
    return store.items[latest_key("invoice")]


def test_a_release_becomes_version_one(publisher: Publisher, store: MemoryStore):
    publisher.publish(release())
    assert store.items[Key("WORKFLOW#invoice", "VERSION#000001")] == {
        "pk": "WORKFLOW#invoice",
        "sk": "VERSION#000001",
        "rev": 1,
        "workflow": "invoice",
        "version": 1,
        "hash": "aaa",
        "version_arn": f"{MACHINE}:1",
        "machine_arn": MACHINE,
        "manifest": '{"hash": "aaa"}',
        "definition": "workflow: invoice # aaa",
        "published_at": 1_700_000_000_000,
    }
    assert (latest(store)["version"], latest(store)["version_arn"]) == (1, f"{MACHINE}:1")


def test_publishing_again_changes_nothing(publisher: Publisher, store: MemoryStore):
    first = publisher.publish(release())
    before = dict(store.items)
    assert publisher.publish(release()) == first
    assert store.items == before


def test_a_changed_definition_is_the_next_version(publisher: Publisher, store: MemoryStore, machines: FakeMachines):
    publisher.publish(release())
    machines.deploy('{"calls": "step:1", "more": 1}', "r2")
    assert publisher.publish(release("bbb", "r2")).version_arn == f"{MACHINE}:2"
    assert numbers(store) == ["VERSION#000001", "VERSION#000002"]
    assert latest(store)["hash"] == "bbb"


def test_new_code_under_the_same_definition_is_a_new_version(
    publisher: Publisher,
    store: MemoryStore,
    machines: FakeMachines,
):
    publisher.publish(release())
    machines.deploy('{"calls": "step:2"}', "r2")
    assert publisher.publish(release("aaa", "r2")).version == 2
    assert latest(store)["version_arn"] == f"{MACHINE}:2"


def test_going_back_makes_the_earlier_version_the_latest(
    publisher: Publisher,
    store: MemoryStore,
    machines: FakeMachines,
):
    publisher.publish(release())
    machines.deploy('{"calls": "step:1", "more": 1}', "r2")
    publisher.publish(release("bbb", "r2"))
    machines.deploy('{"calls": "step:1"}', "r3")
    assert publisher.publish(release("aaa", "r3")).version == 1
    assert numbers(store) == ["VERSION#000001", "VERSION#000002"]
    assert (latest(store)["version"], latest(store)["rev"]) == (1, 3)


def test_only_the_deployed_revision_is_published(publisher: Publisher, store: MemoryStore):
    with pytest.raises(Conflict):
        publisher.publish(release(revision="stale"))
    assert store.items == {}


def test_a_lost_race_is_tried_again(publisher: Publisher, store: MemoryStore):
    store.conflicts = 2
    assert publisher.publish(release()).version == 1
    assert numbers(store) == ["VERSION#000001"]


def test_a_race_that_never_ends_is_reported(publisher: Publisher, store: MemoryStore):
    store.conflicts = 100
    with pytest.raises(StoreConflict, match="Deploy again"):
        publisher.publish(release())


def test_an_asset_of_another_definition_is_refused(publisher: Publisher, store: MemoryStore):
    with pytest.raises(InvalidRequest, match="holds definition zzz, not aaa"):
        publisher.publish(release(key="zzz"))
    assert store.items == {}


def test_workflows_are_numbered_apart(publisher: Publisher, store: MemoryStore):
    publisher.publish(release())
    assert publisher.publish(release(workflow="other", machine_arn=f"{MACHINE}-other")).version == 1


def test_missing_properties_are_named():
    with pytest.raises(InvalidRequest, match="Hash, RevisionId is missing"):
        Release.of({"Workflow": "w", "MachineArn": "m", "AssetBucket": "b", "AssetKey": "k", "RevisionId": ""})


def test_properties_become_a_release():
    properties = {
        "ServiceToken": "t",
        "Workflow": "invoice",
        "Hash": "aaa",
        "MachineArn": MACHINE,
        "RevisionId": "r1",
        "AssetBucket": "assets",
        "AssetKey": "aaa",
    }
    assert Release.of(properties) == release()


class StubClient:
    """Stands in for a boto3 client: one canned answer, requests recorded."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.requests: list[dict[str, Any]] = []

    def publish_state_machine_version(self, **request: Any) -> Any:
        self.requests.append(request)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    describe_state_machine = get_object = publish_state_machine_version


def test_the_revision_travels_to_step_functions():
    client = StubClient({"stateMachineVersionArn": f"{MACHINE}:7"})
    assert StepFunctionsMachines(client).publish(MACHINE, "INITIAL", "text") == f"{MACHINE}:7"
    assert client.requests == [{"stateMachineArn": MACHINE, "revisionId": "INITIAL", "description": "text"}]


def test_the_deployed_definition_is_read():
    assert StepFunctionsMachines(StubClient({"definition": "{}"})).definition(MACHINE) == "{}"


def test_a_stale_revision_is_a_conflict_and_other_errors_stay_themselves():
    stale = ClientError({"Error": {"Code": "ConflictException", "Message": "m"}}, "PublishStateMachineVersion")
    with pytest.raises(Conflict, match="revision r1 is not current"):
        StepFunctionsMachines(StubClient(stale)).publish(MACHINE, "r1", "text")
    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "m"}}, "PublishStateMachineVersion")
    with pytest.raises(ClientError):
        StepFunctionsMachines(StubClient(denied)).publish(MACHINE, "r1", "text")


def test_assets_are_read_as_text():
    class Body:
        def read(self) -> bytes:
            return "ä".encode()

    client = StubClient({"Body": Body()})
    assert S3Assets(client).text("b", "k") == "ä"
    assert client.requests == [{"Bucket": "b", "Key": "k"}]


EVENT = {
    "RequestType": "Create",
    "StackId": "stack",
    "RequestId": "request",
    "LogicalResourceId": "InvoiceVersion",
    "ResponseURL": "https://example.com/signed",
}


def sent(event: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    bodies: list[dict[str, Any]] = []
    answer(event, put=lambda url, body: bodies.append({"url": url, **json.loads(body)}), **arguments)
    (body,) = bodies
    return body


def test_success_is_answered_with_data():
    assert sent(EVENT, resource="workflow-invoice", data={"Version": 1}) == {
        "url": "https://example.com/signed",
        "Status": "SUCCESS",
        "Reason": "published",
        "PhysicalResourceId": "workflow-invoice",
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "InvoiceVersion",
        "Data": {"Version": 1},
    }


def test_failure_is_answered_with_a_reason_that_fits():
    body = sent({**EVENT, "PhysicalResourceId": "known"}, resource="new", data={}, reason="x" * 9000)
    assert (body["Status"], body["PhysicalResourceId"], len(body["Reason"])) == ("FAILED", "known", 1000)


def test_the_answer_is_put_without_content_type():
    received: list[tuple[str, str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, self.headers["Content-Type"], json.loads(body)["Status"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
            """Keep the test's output clean."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.handle_request, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/answer?signature=1"
    answer({**EVENT, "ResponseURL": url}, resource="r", data={})
    thread.join(5)
    server.server_close()
    assert received == [("/answer?signature=1", "", "SUCCESS")]


@pytest.mark.parametrize("host", ["example.com", "localhost.example.com", "localhost@example.com", "127.0.0.1.example"])
def test_an_answer_goes_nowhere_in_the_clear(host):
    with pytest.raises(ValueError, match="neither HTTPS nor this machine"):
        answer({**EVENT, "ResponseURL": f"http://{host}/x"}, resource="r", data={})


def test_a_release_whose_version_was_pruned_becomes_a_new_version(publisher, store, machines):
    publisher.publish(release())
    machines.deploy("new", "r2")
    publisher.publish(release("bbb", "r2"))
    place = Key("WORKFLOW#invoice", "VERSION#000001")
    store.items[place] = {**store.items[place], "pruned": 5}
    machines.deploy('{"calls": "step:1"}', "r1")
    assert publisher.publish(release()).version == 3
    assert latest(store)["version"] == 3
    assert publisher.publish(release()).version == 3


def test_a_workflow_that_is_deployed_no_more_is_retired_until_it_is_deployed_again(publisher, store):
    publisher.publish(release())
    for _ in range(2):
        publisher.retire("invoice", MACHINE)
    assert latest(store)["retired"] == FakeClock().now()
    with pytest.raises(NotFound) as refused:
        DefinitionTable(store).latest("invoice")
    assert refused.value.problem == "workflow_retired"
    publisher.publish(release())
    assert "retired" not in latest(store)
    assert DefinitionTable(store).latest("invoice") == 1


def test_a_workflow_that_another_machine_serves_by_now_is_not_retired(publisher, store):
    publisher.publish(release())
    publisher.retire("invoice", "arn:another")
    publisher.retire("unknown", MACHINE)
    assert "retired" not in latest(store)


def test_retiring_beside_other_deployments_is_tried_again_and_then_refused(publisher, store):
    publisher.publish(release())
    store.conflicts = 2
    publisher.retire("invoice", MACHINE)
    assert latest(store)["retired"]
    del latest(store)["retired"]
    store.conflicts = 99
    with pytest.raises(StoreConflict, match="Deploy again"):
        publisher.retire("invoice", MACHINE)


def test_a_version_that_is_pruned_while_it_is_deployed_again_becomes_a_new_one(publisher, store, machines):
    publisher.publish(release())
    machines.deploy("new", "r2")
    publisher.publish(release("bbb", "r2"))
    place, commit = Key("WORKFLOW#invoice", "VERSION#000001"), store.commit

    def meanwhile(writes):
        store.commit = commit
        commit([Write(place, {**store.items[place], "pruned": 5}, store.items[place]["rev"])])
        commit(writes)

    store.commit = meanwhile
    machines.deploy('{"calls": "step:1"}', "r1")
    assert publisher.publish(release()).version == 3
