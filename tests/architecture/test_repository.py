"""What must not stand in any file of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, tracked

# Where packages come from is each machine's own business: files name packages and hashes, never servers or folders.
FORBIDDEN = {
    "an option that names a package index": r"^\s*(-i|--(extra-)?index-url|--find-links|-f)[ =]\S+",
    "a package index setting": r"(?i)^\s*(index[-_]url|extra[-_]index[-_]url|find[-_]links|registry)\s*=\s*\S+",
    "a resolved address in a lock file": r'"resolved"\s*:',
    "a wheel or archive by address": r"https?://\S+\.(whl|tar\.gz|tgz)\b",
    "a file address": r"\bfile:///\w+",
    "a home folder": r"(?<![\w.])/(home/\w+|root)/\w+",
}
TEXT = {".py", ".lock", ".toml", ".json", ".yaml", ".yml", ".md", ".txt", ".cfg", ".ini", ".sh", ""}
SELF = Path(__file__).resolve().relative_to(ROOT)
FILES = [path for path in tracked() if path.suffix in TEXT and path != SELF]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names_a_registry_or_a_machine(what: str):
    pattern = re.compile(FORBIDDEN[what], re.MULTILINE)
    texts = {path: (ROOT / path).read_text("utf-8") for path in FILES if (ROOT / path).is_file()}
    found = [f"{path}: {hit.group()!r}" for path, text in texts.items() if (hit := pattern.search(text))]
    assert not found, f"{what}: {found}"


def test_the_patterns_find_what_they_look_for():
    samples = [
        "--index-url https://packages.example/simple",
        "registry=https://packages.example/",
        '"resolved": "https://packages.example/x.tgz"',
        "https://packages.example/x-1.0.whl",
        "file:///srv/wheels",
        "/home/ann/project",
    ]
    for pattern, sample in zip(FORBIDDEN.values(), samples, strict=True):
        assert re.search(pattern, sample, re.MULTILINE), pattern


def test_packages_are_locked_with_hashes():
    for name in ("requirements.lock", "requirements-lambda.lock", "requirements-setup.lock"):
        text = (ROOT / name).read_text("utf-8")
        pins = re.findall(r"^[a-z0-9][\w.\-]*(?:\[[\w,]+\])?==", text, re.MULTILINE)
        hashed = re.findall(r"^[a-z0-9][\w.\-]*(?:\[[\w,]+\])?==[^\n]*\\\n\s+--hash=sha256:", text, re.MULTILINE)
        assert len(pins) == len(hashed) > 0, name


def test_the_runtime_brings_boto3_itself():
    names = re.findall(r"^([a-z0-9][\w.\-]*)==", (ROOT / "requirements-lambda.lock").read_text("utf-8"), re.MULTILINE)
    assert not {"boto3", "botocore", "s3transfer"} & set(names)
    assert {"anthropic", "aws-lambda-powertools", "cel-expr-python", "protobuf", "jinja2", "jsonschema"} <= set(names)


def test_every_room_of_shared_is_on_its_map():
    page = (ROOT / "shared" / "README.md").read_text("utf-8")
    rooms = {path.parts[1] for path in tracked() if path.parts[0] == "shared"} - {"README.md", "__init__.py"}
    missing = [room for room in sorted(rooms) if f"]({room})" not in page]
    assert not missing, f"shared/README.md does not say what is in {missing}"
