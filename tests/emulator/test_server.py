"""What the emulator's HTTP server owes the clients of a local cloud, whichever server it is."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from http.client import HTTPConnection

import pytest

from scripts.local import environment
from tests.emulator.emulator import ROOT

BUCKET = "served"
LARGE = 50 * 1024 * 1024


@pytest.fixture(scope="module")
def s3(corrected):
    client = corrected.client("s3")
    client.create_bucket(Bucket=BUCKET)
    return client


def raw(emulator, *pieces: bytes) -> socket.socket:
    connection = socket.create_connection((environment.HOST, emulator.port), timeout=10)
    for piece in pieces:
        connection.sendall(piece)
    return connection


def request(first: str, *headers: str) -> bytes:
    return "\r\n".join([f"{first} HTTP/1.1", f"Host: {environment.HOST}", *headers, "", ""]).encode()


def test_a_connection_serves_many_requests_and_ends_when_told(corrected):
    connection = HTTPConnection(environment.HOST, corrected.port, timeout=10)
    for asked in ("keep-alive", "keep-alive", "close"):
        connection.request("GET", "/_ministack/health", headers={"Connection": asked})
        answer = connection.getresponse()
        assert (answer.status, bool(json.load(answer))) == (200, True)
        assert answer.will_close == (asked == "close")


def test_requests_that_come_at_once_are_answered_in_turn(corrected):
    asked = request("GET /_ministack/health")
    with raw(corrected, asked + asked + request("GET /_ministack/health", "Connection: close")) as connection:
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 3


def test_an_answer_carries_one_date_and_names_no_server(corrected):
    connection = HTTPConnection(environment.HOST, corrected.port, timeout=10)
    connection.request("GET", "/_ministack/health")
    headers = connection.getresponse().headers
    assert len(headers.get_all("date")) == 1
    assert "server" not in headers


def test_a_client_that_asks_first_is_told_to_continue(corrected, s3):
    asked = request(f"PUT /{BUCKET}/asked", "Content-Length: 5", "Expect: 100-continue", "Connection: close")
    with raw(corrected, asked) as connection:
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
    assert s3.get_object(Bucket=BUCKET, Key="asked")["Body"].read() == b"hello"


def test_a_body_of_unknown_length_is_read(corrected, s3):
    connection = HTTPConnection(environment.HOST, corrected.port, timeout=10)
    connection.request("PUT", f"/{BUCKET}/chunks", body=iter([b"one ", b"two"]), encode_chunked=True)
    assert connection.getresponse().status == 200
    assert s3.get_object(Bucket=BUCKET, Key="chunks")["Body"].read() == b"one two"


@pytest.mark.parametrize("key", ["a b", "a+b", "50%", "a/../b", "//a", "ä/é", "a%2Fb", "q?x=1#y"])
def test_a_path_arrives_as_it_was_meant(s3, key):
    s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == key.encode()
    assert key in {found["Key"] for found in s3.list_objects_v2(Bucket=BUCKET)["Contents"]}


def test_a_large_body_goes_both_ways(s3):
    body = os.urandom(LARGE)
    s3.put_object(Bucket=BUCKET, Key="large", Body=body)
    read = s3.get_object(Bucket=BUCKET, Key="large")["Body"].read()
    assert hashlib.sha256(read).digest() == hashlib.sha256(body).digest()


def test_head_has_the_length_and_no_body(corrected, s3):
    s3.put_object(Bucket=BUCKET, Key="headed", Body=b"hello")
    assert s3.head_object(Bucket=BUCKET, Key="headed")["ContentLength"] == 5
    connection = HTTPConnection(environment.HOST, corrected.port, timeout=10)
    for _ in range(2):
        connection.request("HEAD", f"/{BUCKET}/headed")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["content-length"], answer.read()) == (200, "5", b"")


def test_what_has_not_changed_is_not_sent_again(corrected, s3):
    tag = s3.put_object(Bucket=BUCKET, Key="tagged", Body=b"hello")["ETag"]
    connection = HTTPConnection(environment.HOST, corrected.port, timeout=10)
    for _ in range(2):
        connection.request("GET", f"/{BUCKET}/tagged", headers={"If-None-Match": tag})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (304, b"")


def test_long_headers_are_read(corrected):
    connection = HTTPConnection(environment.HOST, corrected.port, timeout=10)
    connection.request("GET", "/_ministack/health", headers={"X-Long": "x" * 30_000})
    assert connection.getresponse().status == 200


def test_one_request_leaves_the_next_nothing_of_its_account(corrected):
    """The second request on the connection is unsigned; the first had a body that came in pieces."""
    connection = HTTPConnection(environment.HOST, corrected.port, timeout=10)
    signed = (
        "AWS4-HMAC-SHA256 Credential=111111111111/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
    )
    for path, more in (("/other", {}), ("/other/large", {"body": os.urandom(1024 * 1024)})):
        connection.request("PUT", path, headers={"Authorization": signed}, **more)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    connection.request("GET", "/other/large")
    assert connection.getresponse().status == 403


def test_what_is_no_http_is_refused_and_the_server_lives_on(corrected):
    with raw(corrected, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n") as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
    with raw(corrected, request("POST /", "Content-Length: 100"), b"left in the middle"):
        pass
    with raw(corrected, request("GET /_ministack/health")) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_port_that_is_taken_is_said(corrected):
    command = [sys.executable, "-m", "scripts.local.launcher", "--port", str(corrected.port)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "address already in use" in ended.stderr
