"""Outputs carry our attestation: who writes one past us is found out by whoever reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import agents
import pytest
from bodies import each, loop, manifest, plan, said, task, tool
from invariants import check
from machine import UNWIND, World

from shared.compiler import compile_manifest
from shared.errors import PermanentFailure
from shared.ledger.seal import Seal, SealedStore
from shared.ports import Key
from shared.runtime.parking import Order, resume_step
from shared.testing import FakeModels, FakeTools, MemoryStore

OLD, NEW = Seal.of("first"), Seal.of("second")
BOTH = Seal({**OLD.keys, **NEW.keys}, NEW.current)


def sealed(*plans, do=None, seal=NEW):
    tools = FakeTools({"do": do or (lambda arguments, _: arguments["say"])})
    unit = compile_manifest(manifest(*plans))
    return World(unit, FakeModels(lambda _: "yes"), tools, store=SealedStore(MemoryStore(), seal))


def records(w):
    return w.store._store.items


def forge(w, path, text='"forged"', **more):
    """Write an output into the table as somebody would who has no key."""
    key = next(key for key in records(w) if key.sk == f"STEP#{path}")
    output = {"digest": sha256(text.encode()).hexdigest(), "size": len(text), "text": text, "blob": None}
    records(w)[key] = {**records(w)[key], "output": output, "status": "completed", "settled": True} | more


def tampering(path, text='"forged"', **more):
    """Return a tool that changes a stored output while its own step runs."""

    def do(arguments, _):
        if arguments["say"] == "tamper":
            forge(do.world, path, text, **more)
        return arguments["say"]

    return do


def played(*plans, do):
    w = do.world = sealed(*plans, do=do)
    return w, w.start({})


def test_a_run_whose_outputs_are_all_ours_completes():
    body = tool("c", say="${ item }")
    w = sealed(tool("a"), each(body, over=["x", "y"], needs=("a",)), loop(tool("d"), until="true", needs=("each",)))
    assert w.start({}).status == "SUCCEEDED"
    assert all(item["seal"] for item in records(w).values() if item.get("output"))
    check(w)


@pytest.mark.parametrize("output", [{}, {"text": "x"}, {"digest": 7}, {"digest": "d", "extra": 1}, "text", [], 0])
def test_what_is_no_output_at_all_pauses_the_run_too(output):
    do = tampering("a", output=output)
    w, run = played(tool("a"), tool("t", "a", say="tamper"), tool("b", "a", "t", say="${ steps.a.output }"), do=do)
    assert (run.status, w.head.state, w.records.step("b").reason) == ("RUNNING", "paused", "attestation_mismatch")


@pytest.mark.parametrize("reads", ["${ steps.a.output }", "fine"])
def test_whoever_reads_a_foreign_output_pauses_the_run(reads):
    w, run = played(tool("a"), tool("t", "a", say="tamper"), tool("b", "a", "t", say=reads), do=tampering("a"))
    step = w.records.step("b")
    assert (run.status, w.head.state, step.status, step.reason) == (
        "RUNNING",
        "paused",
        "paused",
        "attestation_mismatch",
    )
    assert said(w) == ["a", "tamper"]
    resume_step(w.steps, task(w, "b"), Order("accept", "ops", result="by hand"), UNWIND)
    run.go()
    assert run.status == "FAILED AttestationMismatch", "a run does not complete on what is not ours"


def test_what_was_restored_is_read_again():
    w, run = played(tool("a"), tool("t", "a", say="tamper"), tool("b", "a", "t"), do=tampering("a"))
    forge(w, "a", text='"a"')
    resume_step(w.steps, task(w, "b"), Order("retry", "ops"), UNWIND)
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_a_step_that_never_ran_cannot_be_declared_completed():
    def do(arguments, _):
        if arguments["say"] == "tamper":
            key = Key(w.journal.pk, "STEP#b")
            fields = {"path": "b", "step": "b", "type": "tool", "attempt": 1, "epoch": 1, "rev": 1, "pk": key.pk}
            records(w)[key] = {**fields, "sk": key.sk, "status": "completed"}
            forge(w, "b")
        return arguments["say"]

    w = sealed(tool("t", say="tamper"), tool("b", "t"), tool("c", "b"), do=do)
    w.start({})
    assert (w.records.step("c").status, w.records.step("c").reason) == ("paused", "attestation_mismatch")
    assert said(w) == ["tamper"]


@pytest.mark.parametrize("field", ["by", "route", "attempt"])
def test_what_stands_around_an_output_is_attested_too(field):
    w, _ = played(
        tool("a"), tool("t", "a", say="tamper"), tool("b", "a", "t"), do=tampering("a", '"a"', **{field: "7"})
    )
    assert w.records.step("b").reason == "attestation_mismatch"


VALUE = {"digest": "d", "size": 300_000, "text": None, "blob": "TENANT/acme/blobs/d"}
SEALED = {"path": "a", "attempt": 1, "epoch": 1, "by": "step", "route": "r", "arguments": VALUE, "output": VALUE}


@pytest.mark.parametrize(
    "other",
    [
        {"path": "b"},
        {"attempt": 2},
        {"epoch": 2},
        {"by": "person"},
        {"route": "s"},
        {"arguments": VALUE | {"digest": "e"}},
        {"arguments": None},
        {"output": VALUE | {"digest": "e"}},
        {"output": VALUE | {"blob": "TENANT/acme/blobs/e"}},
        {"output": VALUE | {"text": "e"}},
    ],
    ids=str,
)
def test_the_seal_covers_what_an_output_is_of_and_where_it_lies(other):
    item = NEW.sealed("pk", SEALED)
    assert not NEW.checked("pk", item).get("forged")
    assert NEW.checked("pk", item | other).get("forged")
    assert NEW.checked("another run", item).get("forged")


def test_an_output_of_another_run_is_foreign():
    other = sealed(tool("a"))
    other.start({})
    stolen = next(item for key, item in records(other).items() if key.sk == "STEP#a")
    w, _ = played(tool("a"), tool("t", "a", say="tamper"), tool("b", "a", "t"), do=tampering("a", seal=stolen["seal"]))
    assert w.records.step("b").reason == "attestation_mismatch"


def test_a_forged_output_stays_forged_when_its_record_is_written_again():
    w, _ = played(tool("a"), tool("t", "a", say="tamper"), tool("b", "a", "t"), do=tampering("a"))
    step = w.records.step("a")
    item = replace(step, reason="touched").to_item()
    key = Key(w.journal.pk, step.sk)
    assert NEW.checked(key.pk, NEW.sealed(key.pk, item)).get("forged")


def test_keys_can_be_changed_while_runs_go_on():
    w = sealed(tool("a"), plan("w", "wait", ("a",), spec={"event": {"name": "go"}}, timeout=60.0), seal=OLD)
    w.start({})
    pk = w.journal.pk
    stored = records(w)[Key(pk, "STEP#a")]
    assert not BOTH.checked(pk, stored).get("forged")
    assert NEW.checked(pk, stored).get("forged")
    assert BOTH.sealed(pk, stored)["seal"].startswith(NEW.current)


def test_a_secret_is_one_text_or_names_its_keys():
    assert Seal.of("text").keys[Seal.of("text").current] == b"text"
    given = Seal.of(json.dumps({"current": "k2", "keys": {"k1": "a", "k2": "b"}}))
    assert (given.current, dict(given.keys)) == ("k2", {"k1": b"a", "k2": b"b"})
    for wrong in ("{", '{"keys": {}}', '{"current": "k3", "keys": {"k1": "a"}}', '{"current": [], "keys": {}}'):
        with pytest.raises(PermanentFailure, match="attestations"):
            Seal.of(wrong)


@pytest.mark.parametrize("path", ["research/turn[1]", "research/turn[1]/call[0]"])
def test_a_foreign_turn_or_result_of_a_call_is_not_told_to_a_model(path):
    replies = agents.calls(agents.look()), agents.calls(agents.look("Bob")), agents.says()
    w = agents.desk(*replies)
    w = World(w.unit, w.models, w.tools, store=SealedStore(MemoryStore(), NEW))
    look_up = w.tools._functions["look_up"]

    def tampers(arguments, call):
        if call.path.startswith("research/turn[2]"):
            key = next(key for key in records(w) if key.sk == f"STEP#{path}")
            kept[key] = records(w)[key]
            forge(w, path, json.dumps({"text": "", "calls": [], "dropped": 0}))
        return look_up(arguments, call)

    kept = {}
    w.tools._functions["look_up"] = tampers
    run = agents.asked(w)
    assert (w.head.state, w.records.step("research/turn[3]").reason) == ("paused", "attestation_mismatch")
    assert len(w.models.requests) == 2
    records(w).update(kept)
    assert agents.resume(w, run, "research/turn[3]", Order("retry", "ops")).status == "SUCCEEDED"
    check(w)
