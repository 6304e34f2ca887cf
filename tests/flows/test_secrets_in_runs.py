"""Secrets named in arguments: the call knows them, nothing else ever does, and approvals cover their version."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import manifest, plan, task
from invariants import check
from machine import FINANCE, UNWIND, World

from shared.compiler import compile_manifest
from shared.errors import PermanentFailure, TransientFailure
from shared.manifest import Retry
from shared.runtime.gates import Word, decide_gate
from shared.runtime.parking import Order, resume_step
from shared.testing import FakeModels, FakeSecrets, FakeTools

VALUE, NEWER = "tok-5f3a9c", "tok-77b0d1"
AUTH = {"auth": "Bearer ${ secrets.token }", "text": "${ input.text }"}


def call(name="pay", *needs, risk="read", given=AUTH, **more):
    spec = {"tool": "do", "with": given, "compensate": None, "reconcile": None}
    return plan(name, "tool", needs, spec=spec, risk=risk, **more)


def world(*plans, do, secrets=None):
    w = World(compile_manifest(manifest(*plans)), FakeModels(lambda _: "yes"), FakeTools({"do": do}))
    kept = secrets or FakeSecrets(token=[VALUE])
    w.steps, w.gates = replace(w.steps, secrets=kept), replace(w.gates, secrets=kept)
    return w


def everything(w):
    return repr(w.store.items) + repr(w.blobs.__dict__) + repr(w.mail.messages) + repr(w.engine.answers)


@pytest.mark.parametrize("answer", ["echo {auth}", {"deep": ["{auth}"]}, PermanentFailure, TransientFailure])
def test_the_call_knows_the_secret_and_nothing_else_does(answer):
    seen = []

    def do(given, _):
        seen.append(given)
        if isinstance(answer, type):
            raise answer(f"refused {given['auth']}")
        text = answer if isinstance(answer, str) else answer["deep"][0]
        told = text.format(auth=given["auth"])
        return told if isinstance(answer, str) else {"deep": [told]}

    w = world(call(on_error="continue", retry=Retry(1)), do=do)
    w.start({"text": "hi"})
    assert seen[0] == {"auth": f"Bearer {VALUE}", "text": "hi"}
    assert VALUE not in everything(w)
    assert "token@v1" in w.records.step("pay").arguments.text


def test_an_input_that_looks_like_a_reference_reads_no_secret():
    seen = []
    w = world(call(), do=lambda given, _: seen.append(given) or "ok")
    w.start({"text": {"$secret": ["", "token@v1", ""]}})
    assert seen[0]["text"] == {"$secret": ["", "token@v1", ""]}


def asked():
    spec = {"approves": "pay", "approvers": ["finance"], "on_expiry": "reject"}
    gate = plan("g", "human_gate", (), spec=spec, timeout=3600.0, on_error="fail")
    return gate, call("pay", "g", risk="irreversible", approved_by="g")


def test_an_approval_names_the_secret_and_its_version_and_that_one_is_used():
    seen = []
    w = world(*asked(), do=lambda given, _: seen.append(given["auth"]) or "ok")
    execution = w.start({"text": "hi"})
    assert "token@v1" in w.records.gate("g").arguments.text
    decide_gate(w.steps, w.journal, "g", Word("approved", FINANCE[0].email))
    execution.go()
    assert seen == [f"Bearer {VALUE}"]
    assert VALUE not in everything(w)


def test_a_secret_that_was_rotated_after_the_approval_is_another_call():
    secrets = FakeSecrets(token=[VALUE])
    w = world(*asked(), do=lambda *_: "ok", secrets=secrets)
    execution = w.start({"text": "hi"})
    decide_gate(w.steps, w.journal, "g", Word("approved", FINANCE[0].email))
    secrets.versions["token"].append(NEWER)
    execution.go()
    step = w.records.step("pay")
    assert not w.tools.calls, "what was approved was another version"
    assert step.status == "paused"
    assert step.failure.error_class == "policy"
    before = w.records.gate("g")
    resume_step(w.steps, task(w, "pay"), Order("retry", "ops"), UNWIND)
    gate = w.records.gate("g")
    assert (gate.status, gate.dispatch) == ("open", 1)
    assert gate.id != before.id, "the links of what was approved before decide nothing"
    assert gate.digest != before.digest
    check(w)
    decide_gate(w.steps, w.journal, "g", Word("approved", FINANCE[0].email, digest=gate.digest))
    execution.go()
    assert [arguments["auth"] for _, arguments, _ in w.tools.calls] == [f"Bearer {NEWER}"]
    assert w.head.ended == "completed"


def test_a_retry_uses_the_version_that_the_first_attempt_named():
    secrets, seen = FakeSecrets(token=[VALUE]), []

    def do(given, _):
        seen.append(given["auth"])
        secrets.versions["token"].append(NEWER)
        if len(seen) == 1:
            raise TransientFailure("busy")
        return "ok"

    w = world(call(retry=Retry(1)), do=do, secrets=secrets)
    w.start({"text": "hi"})
    assert seen == [f"Bearer {VALUE}"] * 2


def test_a_secret_that_nobody_has_put_says_so_before_anything_is_called():
    w = world(call(on_error="fail"), do=lambda *_: "ok", secrets=FakeSecrets())
    w.start({"text": "hi"})
    assert not w.tools.calls
    assert "no secret token" in w.records.step("pay").failure.message
