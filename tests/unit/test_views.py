"""What people see of a run: exact, in order, consistent with the ledger."""

from __future__ import annotations

from decimal import Decimal

import pytest

from shared.api.reading import Sparing, read_run
from shared.budget.rules import NANO
from shared.ledger.records import Event
from shared.ports import Key, Write
from shared.runtime import views
from shared.values import Value
from tests.unit.waiting_run import INVOICE, TENANT, World, fresh, waiting


def view(world: World):
    return views.run_view(read_run(world.api, world.journal()))


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0.00"),
        (1, "0.000000001"),
        (NANO // 2, "0.50"),
        (NANO, "1.00"),
        (-NANO - 5_000_000, "-1.005"),
        (123_456_789_012_345_678, "123456789.012345678"),
    ],
)
def test_money_is_exact(nano: int, text: str):
    assert views.usd(nano) == text
    assert Decimal(text) * NANO == nano


def test_times_are_iso_8601_in_utc():
    assert views.iso(1_790_000_000_007) == "2026-09-21T14:13:20.007Z"
    assert views.iso(None) is None


def test_a_waiting_run_shows_where_it_stands():
    run = view(waiting())
    assert (run["state"], run["workflow"], run["version"], run["tenant"]) == ("waiting_for_human", "invoice", 1, TENANT)
    assert run["input"] == {"document": "Invoice 17"}
    assert [(step["path"], step["status"]) for step in run["steps"]] == [
        ("extract", "completed"),
        ("review", "waiting"),
        ("post", "blocked"),
    ]
    extract, review, post = run["steps"]
    assert extract["output"] == INVOICE
    assert extract["cost"] == {"usd": "0.001650001", "tokens": 1050, "steps": 1}
    assert extract["model"] == "claude-haiku-4-5"
    assert review["duration_ms"] == 60_000
    assert (post["started_at"], post["duration_ms"], post["attempt"]) == (None, None, 0)
    assert [gate["id"] for gate in run["gates"]] == [f"{run['id']}.{run['gates'][0]['id'][-16:]}"]


def test_spent_is_the_sum_of_the_steps_and_what_the_limits_lack():
    for world in (waiting(), fresh_run()):
        run = view(world)
        costs = [step["cost"] for step in run["steps"]]
        for name, kind in (("usd", Decimal), ("tokens", int), ("steps", int)):
            spent = kind(run["spent"][name])
            assert spent == sum((kind(cost[name]) for cost in costs), kind(0))
            assert spent == kind(run["limits"][name]) - kind(run["left"][name]) - kind(run["reserved"][name])


def fresh_run() -> World:
    world = fresh()
    payload = {"tenant": TENANT, "initiator": "x", "trigger": "api", "workflow": "invoice", "version": 1}
    world.run = world.start({**payload, "input": {"document": "x"}})["run"]
    return world


def test_a_new_run_shows_every_step_as_blocked():
    run = view(fresh_run())
    assert run["state"] == "pending"
    assert {step["status"] for step in run["steps"]} == {"blocked"}
    assert run["spent"] == {"usd": "0.00", "tokens": 0, "steps": 0, "active_time": 0}


def test_an_open_step_shows_what_it_holds():
    class Killed(BaseException):
        """The end of the process, which nothing catches."""

    world = fresh_run()
    world.answer = Killed()
    with pytest.raises(Killed):
        world.step("extract")
    run = view(world)
    assert run["state"] == "running"
    assert run["reserved"] == {"usd": "0.00712", "tokens": 3024, "steps": 1}
    assert run["steps"][0]["reserved"] == run["reserved"]
    world.clock.sleep(3)
    assert view(world)["left"]["active_time"] == 600_000 - 3_000


def test_steps_beside_a_step_follow_it_in_time():
    world = waiting()
    step = world.store.items[Key(world.journal().pk, "STEP#extract")]
    late = {**step, "path": "extract/fallback", "started": step["started"] + 5}
    world.store.commit([Write(Key(world.journal().pk, "STEP#extract/fallback"), late, None)])
    assert [each["path"] for each in view(world)["steps"]] == ["extract", "extract/fallback", "review", "post"]


def test_what_is_too_large_or_gone_is_named_instead():
    world = waiting()
    small = Sparing(world.blobs, limit=10)
    assert small(Value("d", 11, text='"123456789"')) is views.OMITTED
    assert small(Value("d", 3, text='"1"')) == "1"
    assert Sparing(world.blobs)(Value("d", 3, blob="nowhere")) is views.OMITTED
    seen = read_run(world.api, world.journal())
    shown = views.run_view(views.Seen(seen.snapshot, seen.manifest, lambda _: views.OMITTED, seen.now))
    assert shown["input"] is None
    assert shown["input_omitted"]["size"] == len('{"document":"Invoice 17"}')
    assert set(shown["steps"][0]["output_omitted"]) == {"digest", "size"}


def test_events_show_money_and_times_like_everything_else():
    event = Event(seq=3, at=1_790_000_000_000, type="x", path="p", attempt=1, data={"used": {"usd": 5, "tokens": 1}})
    assert views.event_view(event)["data"] == {"used": {"usd": "0.000000005", "tokens": 1, "steps": 0}}
    timed = Event(seq=4, at=1, type="gate_opened", data={"expires": 1_790_000_000_000, "roles": ["finance"]})
    assert views.event_view(timed)["data"] == {"expires": "2026-09-21T14:13:20.000Z", "roles": ["finance"]}


def test_a_run_that_changes_while_it_is_read_is_read_again():
    everything = ""
    world = waiting()
    reads = []

    class Racing(type(world.store)):
        def query(self, pk, prefix, **more):
            items = super().query(pk, prefix, **more)
            reads.append(prefix)
            if reads == [everything]:
                head = dict(self.items[Key(pk, "HEAD")])
                self.commit([Write(Key(pk, "HEAD"), {**head, "left_tokens": head["left_tokens"] - 7}, head["rev"])])
            return items

    world.store.__class__ = Racing
    view(world)
    assert reads.count(everything) == 2
