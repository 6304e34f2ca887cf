"""Runs whose tools are built in, against a server on this machine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from invariants import check
from machine import World

from shared.compiler import compile_loaded
from shared.definition.loader import load_text
from shared.testing import FakeModels, FakeSecrets
from shared.tools.host import ToolBox
from tests.unit.raw_server import RawServer, reply

MODELS = frozenset({"claude-haiku-4-5"})
FILE = """
workflow: orders
input: {type: object, required: [base], properties: {base: {type: string}}}
budget: {usd: 1, steps: 20}
on_error: pause
steps:
  order:
    type: tool
    tool: http.request
    with:
      url: "${ input.base }/orders"
      method: POST
      json: {n: 1}
      headers: {authorization: "Bearer ${ secrets.shop }"}
    risk: reversible
    retry: {max_retries: 1, base_delay: 1s}
    compensate: {tool: http.request, with: {url: "${ input.base }/void", method: POST}}
  after: {type: transform, needs: [order], set: {id: "${ steps.order.output.body.id }"}}
"""


def run(server, file=FILE, **more):
    unit = compile_loaded(load_text(file, "orders.yaml", None), tools={}, models=MODELS)
    tools = ToolBox({}, {"HTTP_ALLOWED_HOSTS": server.place})
    world = World(unit, FakeModels(lambda _: "yes"), tools, **more)
    world.steps = replace(world.steps, secrets=FakeSecrets(shop=["shop-secret"]))
    return world, world.start({"base": server.url})


def test_a_repeated_request_carries_the_same_key_and_no_secret_is_kept():
    answers = [reply(status="503 Service Unavailable"), reply(b'{"id": "A-1", "echo": "Bearer shop-secret"}')]
    with RawServer(lambda _: [answers.pop(0)]) as server:
        world, execution = run(server)
        assert execution.status == "SUCCEEDED"
        keys = {got.headers["idempotency-key"] for got in server.got}
        assert (len(server.got), keys) == (2, {world.records.step("order").call.key})
        assert {got.headers["authorization"] for got in server.got} == {"Bearer shop-secret"}
    kept = json.dumps([str(item) for item in world.store.items.values()])
    assert "shop-secret" not in kept
    assert json.loads(world.records.step("after").output.text) == {"id": "A-1"}
    check(world)


@pytest.mark.parametrize(
    ("parts", "uncertain"),
    [((), True), ((reply(status="422 Unprocessable Content"),), False)],
    ids=["lost", "refused"],
)
def test_what_may_have_happened_is_for_a_person_and_what_was_refused_has_not(parts, uncertain):
    with RawServer(lambda _: parts) as server:
        world, _ = run(server)
        step = world.records.step("order")
        assert (step.status, step.uncertain) == ("paused", uncertain)
    check(world)


def test_one_broken_host_does_not_hold_others():
    files = FILE.replace("risk: reversible", "risk: read").replace("max_retries: 1", "max_retries: 9")
    files = files[: files.index("    compensate")] + files[files.index("  after") :]
    with RawServer(lambda _: [reply(status="503 Service Unavailable")]) as broken:
        world, _ = run(broken, files, breaks=True)
        step = world.records.step("order")
        assert step.status == "paused"
        tools = world.tools
    assert [key.sk for key in world.store.items if "BREAKERS" in key.pk] == ["SERVICE#http.request:127.0.0.1"]
    assert [event for event in world.journal.events() if event.type == "step_held"]
    assert tools.service("http.request", {"url": broken.url}) == "http.request:127.0.0.1"
    assert tools.service("http.request", {"url": "https://example.com/x"}) == "http.request:example.com"
    hidden = {"$secret": ["https://hooks.example/", "token@v1", ""]}
    assert tools.service("http.request", {"url": hidden}) == "http.request:hooks.example"
    assert tools.service("s3.get", {"bucket": "b"}) == "tool:s3.get"
