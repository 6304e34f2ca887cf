"""An agent with tools in this process: ``kill -9`` at every commit, and the house that goes on in another one."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
from process import FILE, Host, forked, mortal

from shared.compiler import compile_file
from shared.ports import ModelReply, Proposal, Usage

PATHS = [
    "serve/turn[1]",
    "serve/turn[1]/call[0]",
    "serve/turn[1]/call[1]",
    "serve/turn[2]",
    "serve/turn[2]/call[0]",
    "serve/turn[3]",
]


def quick_requests():
    """The workflow with an agent; a probe that finds nothing proves it at once."""
    compiled = compile_file(FILE.with_name("stock_request.yaml"))
    agent = compiled.manifest.steps["serve"]
    tool = agent.turns.tools["reserve_article"]
    spec = {**tool.spec, "reconcile": {**tool.spec["reconcile"], "conclusive_after": 0}}
    turns = replace(agent.turns, tools={**agent.turns.tools, tool.id: replace(tool, spec=spec)})
    steps = {**compiled.manifest.steps, "serve": replace(agent, turns=turns)}
    return replace(compiled, manifest=replace(compiled.manifest, steps=steps))


REQUESTS = quick_requests()


def proposes(*calls):
    return ModelReply("", Usage(), "tool_use", tuple(Proposal(*call) for call in calls))


def find(words):
    return "find_article", {"words": words}


def answer(request):
    reserve = ("reserve_article", {"number": "P-100", "quantity": 5})
    turns = (proposes(find("printer paper"), reserve), proposes(find("chair")))
    done = json.dumps({"reserved": ["DOC-000001"], "answer": "Done."})
    return turns[len(request.turns)] if len(request.turns) < len(turns) else done


def life(path, erp, number=0, moment=""):
    host = Host(path, erp.url, unit=REQUESTS, answer=answer)
    if number:
        mortal(host, number, moment)
    run = host.start("k", colleague="jo", request="paper")
    host.engine.host(run)
    state = host.until(run, "completed", "failed", "stopped", "paused")
    return host, run, state


def one_life(path, erp, number, moment):
    def work():
        host, _, _ = life(path, erp, number, moment)
        host.close()

    return forked(work)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_commit_an_agent_goes_on_and_reserves_once(tmp_path, erp, moment):
    killed = 0
    for number in range(1, 30):
        (tmp_path / "erp.json").unlink(missing_ok=True)
        path = tmp_path / f"{number}.db"
        code = one_life(path, erp, number, moment)
        killed += code == -signal.SIGKILL
        host, run, state = life(path, erp)
        seen = host.journal(run).read_all()
        assert (state, len(erp._documents), seen.head.open) == ("completed", 1, 0), f"killed {moment} commit {number}"
        assert [path for path in PATHS if seen.step(path).status != "completed"] == []
        assert len(seen.steps()) == len(PATHS) + 2
        host.close()
        if code == 0:
            break
    assert killed >= 8
