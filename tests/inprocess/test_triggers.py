"""A file's trigger tried in this process: what it makes of an occurrence, and what its run knows of it."""

from __future__ import annotations

from shell import Shell

FILE = """workflow: demo
input: {type: object, required: [doc], properties: {doc: {type: string}}}
triggers:
  - queue: {id: intake, input: {doc: "${ trigger.body.text }"}}
steps: {a: {type: transform, set: {by: "${ trigger.kind + ' ' + trigger.id }", doc: "${ input.doc }"}}}
"""


def test_a_run_starts_as_if_its_trigger_had_and_once_by_one_key(tmp_path):
    shell, file = Shell(tmp_path), tmp_path / "demo.yaml"
    file.write_text(FILE)
    happened = ("run", str(file), "--trigger", "intake", "--idempotency-key", "m-1", "--input", '{"text": "x"}')
    first, again = shell(*happened)[0], shell(*happened)[0]
    assert (first["run"], first["new"], again["new"]) == (again["run"], True, False)
    run = shell("runs", "show", first["run"], "--in-process")
    assert (run["trigger"], run["trigger_id"], run["occurrence"]) == ("queue", "intake", "m-1")
    assert run["steps"][0]["output"] == {"by": "queue intake", "doc": "x"}


def test_what_does_not_fit_is_told_before_anything_runs(tmp_path):
    file = tmp_path / "demo.yaml"
    file.write_text(FILE)
    told = Shell(tmp_path).words("run", str(file), "--trigger", "intake", "--input", '{"txt": "x"}', code=1)
    assert "trigger.body.text" in told
    assert "`--input` is what has happened" in told
