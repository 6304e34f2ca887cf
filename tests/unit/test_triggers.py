"""What schedules, rules and queues hand over: one run an occurrence, and a dead letter for what can never start one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shared.budget.tenant import set_limits
from shared.compiler import compile_loaded
from shared.definition.loader import load_text
from shared.errors import NotFound, TenantBudgetExceeded, TransientFailure, UnfitInput
from shared.ledger.definitions import DefinitionTable
from shared.ledger.keys import latest_key, version_key
from shared.ledger.records import Run, run_partition
from shared.manifest import Manifest, Trigger
from shared.ports import Key, Write
from shared.runtime.journal import Journal
from shared.runtime.scope import Scope
from shared.tenants.register import missing
from shared.testing import (
    Bulletin,
    FakeEngine,
    FixedDefinitions,
    FrozenClock,
    LetterBox,
    MemoryBlobs,
    MemoryStore,
)
from shared.triggers.occurrences import direct, of_event, of_schedule, of_webhook, queue_name, queued
from shared.triggers.starting import TriggerHost, fire, key, take, take_messages
from shared.values import DEEPEST

TEXT = """workflow: in-take
input: {type: object, required: [doc], additionalProperties: false, properties: {doc: {type: string}}}
triggers:
  - schedule: {id: nightly, cron: "0 2 * * ? *", timezone: Europe/Berlin, input: {doc: "of ${ trigger.time }"}}
  - event: {id: uploaded, tenant: acme, pattern: {source: [app.uploads]}}
  - queue: {id: intake, input: {doc: "${ trigger.body.text }"}}
  - queue: {id: by_tenant, tenant_by_group: true}
steps: {a: {type: transform, set: {x: "${ trigger.kind + '/' + trigger.id + '/' + trigger.occurrence }"}}}
"""
EVENT = {"id": "e-1", "source": "app.uploads", "detail-type": "Uploaded", "time": "2026-11-30T11:00:00Z"}


def manifest(text=TEXT) -> Manifest:
    return compile_loaded(load_text(text, "t.yaml", None), tools={}, models=frozenset()).manifest


MANIFEST = manifest()


def host(known=MANIFEST, *tenants) -> TriggerHost:
    made = MemoryStore()
    for tenant in tenants or ("acme",):
        made.commit(missing(made, tenant))
    return TriggerHost(
        store=MemoryStore(),
        blobs=MemoryBlobs(),
        clock=FrozenClock(),
        engine=FakeEngine(),
        definitions=FixedDefinitions(known),
        environment="prod",
        tenants=made,
        dead_letters=LetterBox(),
        events=Bulletin(),
    )


def message(body, trigger="intake", id_="m-1", **attributes):
    arn = f"arn:aws:sqs:eu-central-1:1:{queue_name('prod', 'in-take', trigger)}"
    text = body if isinstance(body, str) else json.dumps(body)
    return {"messageId": id_, "body": text, "attributes": attributes, "messageAttributes": {}, "eventSourceARN": arn}


def facts(made, run, tenant="default"):
    key_ = Key(run_partition(tenant, run), "RUN")
    return Run.from_item(made.store.read([key_])[key_])


def given(made, run, tenant="default"):
    return json.loads(facts(made, run, tenant).input.text)


# what is deployed calls with


def test_a_schedule_a_rule_and_a_queue_say_what_has_happened():
    nightly = direct({"kind": "schedule", "workflow": "in-take", "trigger": "nightly", "time": "2026-11-30T01:00:00Z"})
    assert nightly == of_schedule("in-take", "nightly", "2026-11-30T01:00:00Z")
    event = {**EVENT, "detail": {"doc": "x"}}
    uploaded = direct({"kind": "event", "workflow": "in-take", "trigger": "uploaded", "event": event})
    assert uploaded == of_event("in-take", "uploaded", event)
    assert (uploaded.id, uploaded.seen["type"], uploaded.seen["detail"]) == ("e-1", "Uploaded", {"doc": "x"})
    intake = queued("prod", message({"text": "x"}))
    assert (intake.workflow, intake.trigger, intake.id, intake.seen["body"]) == (
        "in-take",
        "intake",
        "m-1",
        {"text": "x"},
    )


@pytest.mark.parametrize(("body", "seen"), [("[1]", [1]), ("plain", "plain"), ("", ""), ("[" * 100_000, "[" * 100_000)])
def test_a_messages_body_is_json_if_it_can_be(body, seen):
    assert queued("prod", message(body)).seen["body"] == seen


def test_a_messages_attributes_are_texts():
    own = {
        "kind": {"stringValue": "invoice", "dataType": "String"},
        "MessageGroupId": {"stringValue": "forged", "dataType": "String"},
        "raw": {"binaryValue": "AAE=", "dataType": "Binary"},
    }
    record = {**message("x", MessageGroupId="acme", ApproximateReceiveCount="3"), "messageAttributes": own}
    assert queued("prod", record).seen["attributes"] == {"kind": "invoice", "raw": "AAE=", "MessageGroupId": "acme"}


# one run an occurrence


def test_a_schedule_starts_one_run_for_its_time():
    made = host()
    call = {"kind": "schedule", "workflow": "in-take", "trigger": "nightly", "time": "2026-11-30T01:00:00Z"}
    run, again = take(made, direct(call), call), take(made, direct(call), call)
    assert run == again
    known = facts(made, run)
    assert (known.trigger, known.trigger_id, known.occurrence) == ("schedule", "nightly", "2026-11-30T01:00:00Z")
    assert given(made, run) == {"doc": "of 2026-11-30T01:00:00Z"}
    assert take(made, direct({**call, "time": "2026-12-01T01:00:00Z"}), call) != run
    assert len(made.engine.executions) == 2


def test_an_event_starts_a_run_of_its_triggers_tenant():
    made = host()
    run, new = fire(made, of_event("in-take", "uploaded", {**EVENT, "detail": {"doc": "x"}}))
    assert new
    assert given(made, run, "acme") == {"doc": "x"}


def test_steps_know_what_has_started_their_run():
    made = host()
    run, _ = fire(made, queued("prod", message({"text": "x"})))
    journal = Journal(made.store, made.clock, "default", run)
    names = Scope(journal.read(["RUN"]), made.blobs, MANIFEST).names["trigger"]
    assert names == {"kind": "queue", "id": "intake", "occurrence": "m-1", "initiator": "queue:intake"}


def test_triggers_and_workflows_do_not_share_occurrences():
    ids = {
        key(replace(queued("prod", message("x")), workflow=workflow, trigger=trigger, id=id_))
        for workflow in ("a", "a-b")
        for trigger in ("x", "y")
        for id_ in ("1", "2")
    }
    assert len(ids) == 8


def published(*manifests):
    """Return a table that holds them as versions 1, 2, ... of the workflow."""
    store = MemoryStore()
    for version, one in enumerate(manifests, 1):
        facts_ = {"version": version, "hash": one.hash, "version_arn": f"machine:{version}", "workflow": one.workflow}
        store.commit([Write(version_key("in-take", version), {**facts_, "manifest": json.dumps(one.to_json())}, None)])
    store.commit([Write(latest_key("in-take"), {"workflow": "in-take", "version": len(manifests)}, None)])
    return DefinitionTable(store)


def test_the_newest_version_maps_and_the_run_is_pinned_to_it():
    newest = manifest(TEXT.replace("body.text", "body.other"))
    made = replace(host(), definitions=published(MANIFEST, newest))
    run, _ = fire(made, queued("prod", message({"text": "old", "other": "new"})))
    known = facts(made, run)
    assert (known.version, known.hash, given(made, run)) == (2, newest.hash, {"doc": "new"})
    assert [machine for machine, _ in made.engine.executions] == ["machine:2"]


DEEP = """workflow: in-take
triggers:
  - queue: {id: intake, input: {doc: "${ trigger.body.text }"}}
  - queue: {id: whole}
  - queue: {id: part, input: {doc: "${ trigger.body.doc }"}}
steps: {a: {type: transform, set: {x: 1}}}
"""


@pytest.mark.parametrize("trigger", ["intake", "whole", "part"])
def test_what_is_nested_too_deeply_starts_a_run_or_becomes_a_dead_letter(trigger):
    """It was delivered again and again: a body can be read that cannot be mapped, or not be kept."""
    made = host(manifest(DEEP))
    depths = (*range(8, 970, 15), 126, 127, 128, 129)
    bodies = [f'{{"doc": "x", "text": {"[" * depth}{"]" * depth}}}' for depth in depths]
    records = [message(body, trigger, f"m-{number}") for number, body in enumerate(bodies)]
    assert take_messages(made, records) == []
    fit = sum(depth < DEEPEST for depth in depths)  # the input is one level more than the text in it
    started = len(made.engine.executions)
    assert started > fit if trigger == "part" else started == fit
    assert len(made.dead_letters.letters) + started == len(records)


def test_a_trigger_whose_tenant_has_changed_asks_for_a_run_of_its_new_tenant():
    """What a tenant has been asked for is kept with the tenant, as its runs are: nobody looks into another's."""
    made, event = host(), {**EVENT, "detail": {"doc": "x"}}
    run, _ = fire(made, of_event("in-take", "uploaded", event))
    changed = replace(made, definitions=FixedDefinitions(manifest(TEXT.replace("tenant: acme, ", ""))))
    other, new = fire(changed, of_event("in-take", "uploaded", event))
    assert (new, facts(made, run, "acme").id, facts(made, other).id) == (True, run, other)
    assert fire(changed, of_event("in-take", "uploaded", event)) == (other, False)


# what can never start a run


@pytest.mark.parametrize(
    ("record", "code", "told"),
    [
        (message({"txt": "x"}), "unfit_input", "trigger.body.text"),
        (message("no object"), "unfit_input", "trigger.body.text"),
        (message({"text": 5}), "unfit_input", "$.doc: 5 is not of type 'string'"),
        (message("x", trigger="gone"), "unknown_trigger", "in its newest version"),
        (message("x", trigger="nightly"), "unknown_trigger", "in its newest version"),
        (message({"doc": "x"}, "by_tenant"), "unfit_input", "names no tenant"),
        (message({"doc": "x"}, "by_tenant", MessageGroupId="No Tenant"), "unfit_input", "names no tenant"),
        (message({"doc": "x"}, "by_tenant", MessageGroupId="stranger"), "unknown_tenant", "no tenant stranger"),
    ],
)
def test_it_becomes_a_dead_letter_with_its_reason_and_is_announced_without_data(record, code, told):
    made = host()
    assert take(made, queued("prod", record), record) is None
    ((letter, about),) = made.dead_letters.letters
    assert letter == record
    assert about["reason"].startswith(f"{code}: ")
    assert told in about["reason"]
    (one,) = made.events.announced
    assert (one.kind, one.detail["code"], one.detail["occurrence"]) == ("Trigger Refused", code, "m-1")
    assert "reason" not in one.detail
    assert made.engine.executions == {}


def test_a_workflow_that_is_gone_starts_nothing():
    record = {**message("x"), "eventSourceARN": "arn:aws:sqs:eu-central-1:1:signalbox-prod-gone-intake"}
    made = host()
    assert take(made, queued("prod", record), record) is None
    assert made.dead_letters.letters[0][1]["reason"].startswith("unknown_workflow: ")


def test_a_tenant_that_nobody_has_set_up_gets_no_runs():
    made = host(MANIFEST, "other")
    with pytest.raises(NotFound, match="no tenant acme"):
        fire(made, of_event("in-take", "uploaded", {**EVENT, "detail": {"doc": "x"}}))


def test_a_message_that_names_its_tenant_starts_that_ones_run():
    made = host()
    record = message({"doc": "x"}, "by_tenant", MessageGroupId="acme")
    assert facts(made, take(made, queued("prod", record), record), "acme").trigger_id == "by_tenant"


def test_what_may_pass_is_delivered_again():
    made, record = host(), message({"text": "x"})
    made.store.before_commit = lambda _: (_ for _ in ()).throw(TransientFailure("no"))
    with pytest.raises(TransientFailure):
        take(made, queued("prod", record), record)
    assert made.dead_letters.letters == []


def test_of_a_batch_only_what_has_failed_comes_again():
    made = host()
    commits = made.store.before_commit

    def once(writes):
        made.store.before_commit = commits
        raise TransientFailure("no")

    made.store.before_commit = once
    records = [message({"text": "x"}, id_="m-1"), message("no object", id_="m-2"), message({"text": "x"}, id_="m-3")]
    assert take_messages(made, records) == ["m-1"]
    assert [letter["messageId"] for letter, _ in made.dead_letters.letters] == ["m-2"]
    assert len(made.engine.executions) == 1
    assert take_messages(made, [records[0], records[2]]) == []
    assert len(made.engine.executions) == 2


def test_an_empty_purse_is_no_dead_letter():
    limited = replace(MANIFEST, budget=replace(MANIFEST.budget, usd=5))
    made, record = host(limited), message({"text": "x"})
    set_limits(made.store, "default", {"usd": 1}, monthly=False, now=made.clock.now())
    with pytest.raises(TenantBudgetExceeded):
        take(made, queued("prod", record), record)
    assert made.dead_letters.letters == []


@pytest.mark.parametrize("broken", ["dead_letters", "events"])
def test_a_letter_that_cannot_be_kept_leaves_the_message_where_it_is(broken):
    made, record = host(), message("no object")
    getattr(made, broken).failure = TransientFailure("no")
    with pytest.raises(TransientFailure):
        take(made, queued("prod", record), record)


def test_a_letter_that_cannot_be_kept_is_not_announced_each_time():
    made, record = host(), message("no object")
    made.dead_letters.failure = TransientFailure("no")
    for _ in range(3):
        with pytest.raises(TransientFailure):
            take(made, queued("prod", record), record)
    assert made.events.announced == []


def test_what_comes_again_after_the_workflow_has_changed_is_the_run_that_it_has_started():
    made, record = host(), message({"text": "x"})
    run = take(made, queued("prod", record), record)
    changed = replace(made, definitions=FixedDefinitions(manifest(TEXT.replace("body.text", "body.other"))))
    assert take(changed, queued("prod", record), record) == run
    assert made.dead_letters.letters == []
    with pytest.raises(UnfitInput):
        fire(changed, queued("prod", message({"text": "x"}, id_="m-2")))


def test_a_trigger_of_another_kind_is_another_trigger():
    with pytest.raises(NotFound):
        fire(host(), of_webhook("in-take", "intake", "m-1", {}, {}))


# the manifest


def test_the_manifest_carries_triggers_and_says_nothing_where_there_are_none():
    assert [(one.kind, one.id, one.tenant) for one in MANIFEST.triggers] == [
        ("schedule", "nightly", "default"),
        ("event", "uploaded", "acme"),
        ("queue", "intake", "default"),
        ("queue", "by_tenant", "default"),
    ]
    assert MANIFEST.trigger("uploaded") == Trigger(
        "event", "uploaded", "acme", "${ trigger.detail }", {"pattern": {"source": ["app.uploads"]}}
    )
    assert Manifest.from_json(json.loads(json.dumps(MANIFEST.to_json()))) == MANIFEST
    assert "triggers" not in replace(MANIFEST, triggers=()).to_json()


def test_another_mapping_is_another_version():
    assert manifest(TEXT.replace("body.text", "body.other")).hash != MANIFEST.hash
