"""What the SQLite store promises beyond the common contract (test_dynamodb_store.py), the blobs, and the locks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

from shared.blobs.files import FileBlobs
from shared.errors import PermanentFailure, StoreConflict
from shared.ids import sha256
from shared.inprocess.locks import RunLocks
from shared.ledger.sqlite import SqliteStore, StoreUnusable
from shared.ports import Key, Write
from shared.values import Value

COUNTER = Key("p", "counter")
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "runs.db"


def put(sk, expected=None, **fields):
    return Write(Key("p", sk), fields, expected)


def count_up(store, times):
    """Add one so often, each time on what was read; every addition is one conditional write."""
    for _ in range(times):
        while True:
            known = store.read([COUNTER]).get(COUNTER)
            try:
                n = known["n"] + 1 if known else 1
                store.commit([Write(COUNTER, {"n": n}, known["rev"] if known else None)])
                break
            except StoreConflict:
                continue


def in_process(work):
    child = FORK.Process(target=work)
    child.start()
    return child


def test_what_was_committed_is_there_after_reopening(path):
    store = SqliteStore(path)
    store.commit([put("a", text="Grüße", n=2**53, nested={"list": [1, None, True]})])
    store.close()
    again = SqliteStore(path)
    assert again.query("p", "a") == [
        {"pk": "p", "sk": "a", "rev": 1, "text": "Grüße", "n": 2**53, "nested": {"list": [1, None, True]}}
    ]


def test_half_characters_from_outside_can_be_kept(path):
    store = SqliteStore(path)
    store.commit([put("a", text="\ud800", value=Value("d", 1, text="\udfff")), put("b", value=Value("d", 1))])
    found = {item["sk"]: item for item in store.query("p", "")}
    assert found["a"]["text"] == "\ud800"
    assert found["a"]["value"] == {"digest": "d", "size": 1, "text": "\udfff", "blob": None}
    assert found["b"]["value"] == {"digest": "d", "size": 1, "text": None, "blob": None}


def test_the_log_is_used_again_instead_of_growing(path):
    store = SqliteStore(path)
    log = path.with_name(f"{path.name}-wal")
    sizes = []
    for number in range(600):
        store.commit([put(f"{number}", text="x" * 3000)])
        sizes.append(log.stat().st_size)
    assert sizes[-1] == sizes[-100]
    assert sizes[-1] < 4 * 2**20


def test_only_the_owner_can_read_the_file(path):
    SqliteStore(path).close()
    assert path.stat().st_mode & 0o077 == 0


def test_every_commit_is_flushed_to_the_disk(path):
    store = SqliteStore(path)
    found = {name: store._writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert found == {"journal_mode": "wal", "synchronous": 2}


def test_threads_that_compete_lose_nothing(path):
    store = SqliteStore(path)
    threads = [threading.Thread(target=count_up, args=(store, 20)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read([COUNTER])[COUNTER]["n"] == 160


def test_processes_that_compete_lose_nothing(path):
    store = SqliteStore(path)
    children = [in_process(lambda: count_up(SqliteStore(path), 25)) for _ in range(3)]
    count_up(store, 25)
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    assert store.read([COUNTER])[COUNTER]["n"] == 100


def test_commits_that_arrive_together_share_one_flush_and_a_conflict_among_them_is_its_own(path):
    store = SqliteStore(path)
    store.commit([put("taken")])
    statements, errors = [], {}
    store._writer.set_trace_callback(statements.append)

    def commit(name):
        try:
            store.commit([put(name), put("taken")] if name == "bad" else [put(name)])
        except StoreConflict as error:
            errors[name] = error

    with store._turn:  # as if a commit were being written just now
        threads = [threading.Thread(target=commit, args=(name,)) for name in ("a", "bad", "c", "d")]
        for thread in threads:
            thread.start()
        while len(store._waiting) < 4:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    assert statements.count("COMMIT") == 1
    assert list(errors) == ["bad"]
    assert [item["sk"] for item in store.query("p", "")] == ["a", "c", "d", "taken"]


def test_a_reader_is_not_held_up_by_a_writer_and_sees_only_what_was_committed(path):
    store, other = SqliteStore(path), sqlite3.connect(path, isolation_level=None)
    store.commit([put("a", n=1)])
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE items SET rev = 9")
    assert store.read([Key("p", "a")])[Key("p", "a")]["rev"] == 1
    other.execute("ROLLBACK")


def test_it_tells_when_another_process_has_written(path):
    store = SqliteStore(path)
    store.commit([put("own")])
    assert not store.changed_elsewhere()
    child = in_process(lambda: SqliteStore(path).commit([put("foreign")]))
    child.join(30)
    assert store.changed_elsewhere()
    assert not store.changed_elsewhere()


def test_a_place_that_cannot_hold_the_file_is_refused_with_its_name(tmp_path):
    (tmp_path / "file").write_text("no database, but long enough to be one" * 50)
    for place in (tmp_path / "file", tmp_path / "file" / "runs.db"):
        with pytest.raises(StoreUnusable, match="file"):
            SqliteStore(place)


def test_blobs_are_found_again_and_stored_once(tmp_path):
    blobs, data = FileBlobs(tmp_path), b"x" * 9000
    key = blobs.put("acme", sha256(data), data)
    assert blobs.put("acme", sha256(data), data) == key == f"TENANT/acme/blobs/{sha256(data)}"
    assert FileBlobs(tmp_path).get(key) == data
    assert [file.name for file in Path(tmp_path / "TENANT/acme/blobs").iterdir()] == [sha256(data)]


def test_a_blob_that_is_gone_or_outside_the_folder_is_refused(tmp_path):
    for key in ("TENANT/acme/blobs/none", "TENANT/../../etc/passwd"):
        with pytest.raises(PermanentFailure):
            FileBlobs(tmp_path).get(key)


def test_a_lock_is_free_the_moment_its_process_is_dead(tmp_path):
    locks = RunLocks(tmp_path / "locks")
    ready, go = FORK.Pipe()

    def hold():
        mine = RunLocks(tmp_path / "locks")
        go.send((mine.acquire("one"), mine.acquire("two")))
        signal.pause()

    child = in_process(hold)
    assert ready.recv() == (True, True)
    assert (locks.acquire("one"), locks.is_free("two"), locks.acquire("three")) == (False, False, True)
    os.kill(child.pid, signal.SIGKILL)
    child.join(30)
    assert (locks.acquire("one"), locks.is_free("two"), locks.is_free("three")) == (True, True, False)
    locks.release("one")
    assert locks.is_free("one")
