"""Outputs carry an attestation on this host too: who edits the file without its key is found out."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest
from process import Host

from shared.ledger.keyfile import key_in
from shared.ledger.sqlite import StoreUnusable
from shared.runtime.gates import Word, decide_gate


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


def waiting(path, erp):
    """A large invoice that waits for its approval; its process has ended."""
    host = Host(path, erp.url, 9000)
    run = host.start()
    host.engine.host(run)
    host.until(run, "waiting_for_human")
    host.close()
    return run


def edited(path, statement, *given):
    with sqlite3.connect(path) as file:
        assert file.execute(statement, given).rowcount
    file.close()


def forge(path):
    """Write another amount into the extracted invoice, its digest along with it, as who knows the format would."""
    with sqlite3.connect(path) as file:
        (body,) = file.execute("SELECT body FROM items WHERE sk = 'STEP#extract'").fetchone()
    file.close()
    item = json.loads(body)
    text = item["output"]["text"].replace("9000", "1")
    item["output"] |= {"text": text, "digest": sha256(text.encode()).hexdigest(), "size": len(text)}
    edited(path, "UPDATE items SET body = ? WHERE sk = 'STEP#extract'", json.dumps(item))


def approved(path, erp, run, *states):
    """Another process goes on with the run, and somebody approves. Returns why it stands still, if it does."""
    host = Host(path, erp.url, 9000)
    host.engine.host(run)
    journal = host.journal(run)
    decide_gate(host.handlers.steps, journal, "review", Word("approved", "finance@example.test"))
    host.until(run, *states)
    reasons = {step.reason for step in journal.read_all().steps() if step.reason}
    host.close()
    return reasons


def test_an_output_edited_in_the_file_pauses_the_run_before_anything_is_paid(path, erp):
    run = waiting(path, erp)
    forge(path)
    assert approved(path, erp, run, "paused") == {"attestation_mismatch"}
    assert not erp._documents


def test_an_output_that_nobody_touched_is_paid_for_by_another_process(path, erp):
    run = waiting(path, erp)
    assert approved(path, erp, run, "completed") == set()
    assert len(erp._documents) == 1
    assert path.with_name("runs.db-key").stat().st_mode & 0o777 == 0o600


def test_what_a_file_held_before_it_had_a_key_is_taken_over(path, erp):
    run = waiting(path, erp)
    edited(path, "UPDATE items SET body = json_remove(body, '$.seal') WHERE sk LIKE 'STEP#%'")
    edited_version(path, 0)
    path.with_name("runs.db-key").unlink()
    assert approved(path, erp, run, "completed") == set()


def test_without_the_key_a_file_cannot_be_passed_off_as_one_from_before(path, erp):
    run = waiting(path, erp)
    forge(path)
    edited_version(path, 0)
    assert approved(path, erp, run, "paused") == {"attestation_mismatch"}


def test_a_process_that_died_while_it_sealed_what_was_there_is_followed_by_one_that_does(path, erp):
    run = waiting(path, erp)
    edited(path, "UPDATE items SET body = json_remove(body, '$.seal') WHERE sk LIKE 'STEP#%'")
    edited_version(path, 0)
    key = path.with_name("runs.db-key")
    key.write_text(f"new {key.read_text()}")
    assert approved(path, erp, run, "completed") == set()
    assert not key.read_text().startswith("new")


def edited_version(path, number):
    with sqlite3.connect(path) as file:
        file.execute(f"PRAGMA user_version = {number}")
    file.close()


def test_with_another_key_what_ran_before_is_foreign(path, erp):
    run = waiting(path, erp)
    path.with_name("runs.db-key").unlink()
    assert approved(path, erp, run, "paused") == {"attestation_mismatch"}


@pytest.mark.parametrize("text", ["", "short", "{" * 64, "g" * 64, "ab" * 40])
def test_a_key_that_is_none_is_refused_by_name(path, erp, text):
    path.with_name("runs.db-key").write_text(text)
    with pytest.raises(StoreUnusable, match=r"runs\.db-key.* holds no key"):
        Host(path, erp.url)


def test_those_who_make_the_key_at_once_have_the_same(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(key_in, [tmp_path / "key"] * 64))  # the same, and marked as new
    assert len(keys) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["key"]
