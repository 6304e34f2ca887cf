"""``kill -9`` at every commit of maps, loops, children, fallbacks and joins: nothing lost, nothing twice."""

from __future__ import annotations

import signal
from contextlib import contextmanager

import pytest
from process import TOOLS, Host, forked, mortal, quiet_erp

from shared.compiler import compile_file

POST = """
type: tool, tool: erp_post, risk: reversible, timeout: 30s,
with: {vendor: Contoso, number: "NUMBER", due: "2026-11-01", currency: EUR, amount: 5, category: goods},
retry: {max_retries: 1, base_delay: 1s, jitter: false},
compensate: {tool: erp_void, with: {document: "${ steps.NAME.output.document }"}},
reconcile: {tool: erp_find, with: {key: "${ call.idempotency_key }"}, found: result.count > 0, conclusive_after: 1s}
""".replace("\n", " ")


def post(name, number, more=""):
    """Return a step of a file that posts a document of this number."""
    return f"{name}: {{{POST.replace('NUMBER', number).replace('NAME', name)}{more}}}"


SHAPES = f"""workflow: shapes
input: {{type: object}}
steps:
  each: {{type: map, over: "${{ [1, 2] }}", as: n, steps: {{{post("a", "m-${ n }")}}}}}
  again: {{type: loop, until: loop.iteration >= 2, max_iterations: 3, steps: {{{post("b", "l-${ loop.iteration }")}}}}}
  sub: {{type: sub_workflow, workflow: shapes_child}}
  wrong: {{type: tool, tool: erp_void, with: {{document: none}}, risk: read, fallback: instead}}
  {post("instead", "f")}
  {post("last", "z", ", needs: [each, again, sub, wrong]")}
"""
CHILD = f"""workflow: shapes_child
input: {{type: object}}
steps:
  {post("c", "c")}
"""
ALL = ["c", "f", "l-1", "l-2", "m-1", "m-2", "z"]
MOMENTS = ("before", "after")
MOST = 60
"""More commits than there are."""


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    for name, text in (("shapes", SHAPES), ("shapes_child", CHILD)):
        (folder / f"{name}.yaml").write_text(text)
    return [compile_file(folder / f"{name}.yaml", tools=TOOLS) for name in ("shapes_child", "shapes")]


def life(path, erp, units, number=0, moment=""):
    """Let a process drive the run to its end, or to its own."""

    def work():
        host = Host(path, erp.url, unit=units[0])
        host.published = host.workspace.publish(units[1], path)
        if number:
            mortal(host, number, moment)
        run = host.start("k")
        host.engine.host(run)
        assert host.until(run, "completed", "failed", "stopped", "paused") == "completed"
        assert host.head(run).open == 0
        host.close()

    return forked(work)


@contextmanager
def bank():
    """Serve a far side that keeps its documents in memory: a lock on a file would be inherited by who is forked."""
    erp = quiet_erp(None)
    yield erp
    erp.shutdown()
    erp.server_close()


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_commit_every_effect_is_there_once(tmp_path, units, moment):
    killed = 0
    for number in range(1, MOST):
        with bank() as erp:
            path, what = tmp_path / f"{number}.db", f"killed {moment} commit {number}"
            code = life(path, erp, units, number, moment)
            killed += code == -signal.SIGKILL
            assert life(path, erp, units) == 0, what
            assert sorted(document["body"]["number"] for document in erp._documents) == ALL, what
        if code == 0:
            break
    assert killed >= 5
