"""The import rules of the design: who may know whom."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, imports, python_files


@dataclass(frozen=True)
class Rule:
    """Files under ``where`` import nothing of ``never``, except those under ``unless``, which may."""

    says: str
    where: tuple[str, ...]
    never: tuple[str, ...]
    unless: tuple[str, ...] = ()

    def broken(self, file: str, imported: set[str]) -> list[str]:
        if not any(within(file, place) for place in self.where) or any(within(file, place) for place in self.unless):
            return []
        return sorted(name for name in imported if any(below(name, module) for module in self.never))


def within(file: str, place: str) -> bool:
    return file == place or file.startswith(f"{place}/") or ("*" in place and Path(file).match(place))


def below(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


LAMBDA = ("shared", "functions")
ADAPTERS = (
    "functions/bootstrap.py",
    "shared/*/aws.py",
    "shared/*/dynamodb.py",
    "shared/*/s3.py",
    "shared/*/ses.py",
    "shared/*/stepfunctions.py",
    "shared/*/secrets.py",
)
RULES = [
    Rule("shared knows neither infra nor functions", ("shared",), ("infra", "functions", "scripts", "app")),
    Rule("functions never know infra", ("functions",), ("infra", "app", "scripts")),
    Rule("only the publisher may compile", ("functions",), ("shared.compiler", "shared.asl"), ("functions/publish",)),
    Rule("boto3 only in adapters and bootstrap", LAMBDA, ("boto3", "botocore"), ADAPTERS),
    Rule(
        "model and HTTP clients only in models and tools",
        ("app.py", "infra", *LAMBDA),
        ("anthropic", "httpcore2", "httpx", "httpx2", "openai", "requests", "urllib3"),
        ("shared/models", "shared/tools"),
    ),
    Rule("tools do not know who calls them", ("shared/tools",), ("shared.runtime", "shared.inprocess")),
    Rule("CDK only in app.py and infra", ("scripts", "workflows", *LAMBDA), ("aws_cdk", "constructs", "jsii")),
    Rule("tests stay out of the product", ("app.py", "infra", *LAMBDA), ("tests", "pytest", "moto", "ministack")),
]
FILES = [str(path) for path in python_files("app.py", "infra", "shared", "functions", "workflows", "scripts")]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.says)
def test_import_rule(rule: Rule):
    broken = {file: names for file in FILES if (names := rule.broken(file, imports(Path(file))))}
    assert not broken, f"{rule.says}: {broken}"


def test_infra_knows_only_the_compiler_and_the_settings_of_shared():
    allowed = ("shared.compiler", "shared.settings")
    for path in python_files("infra"):
        ours = {name for name in imports(path) if below(name, "shared") or below(name, "functions")}
        assert not {name for name in ours if not any(below(name, one) for one in allowed)}, path


def test_rules_see_lazy_and_relative_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.architecture.sources.ROOT", tmp_path)
    (tmp_path / "shared").mkdir()
    text = "from . import near\ndef f():\n    from infra.settings import x\n    import boto3.session\n"
    (tmp_path / "shared" / "lazy.py").write_text(text)
    found = imports(Path("shared/lazy.py"))
    assert found == {"shared.near", "infra.settings.x", "boto3.session"}
    assert RULES[0].broken("shared/lazy.py", found) == ["infra.settings.x"]
    assert RULES[3].broken("shared/lazy.py", found) == ["boto3.session"]


def declared(*extras: str) -> set[str]:
    """Return the normal names of the packages that pyproject.toml names, with those of ``extras``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    return {normal(re.split(r"[^A-Za-z0-9._-]", one)[0]) for one in named}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


LAPTOP = "shared/inprocess"
"""What no function imports."""
COMES_WITH = {"constructs": "aws-cdk-lib", "jsii": "aws-cdk-lib"}
"""What one cannot have the other without: the CDK is written against these."""


@pytest.mark.parametrize(
    ("places", "extras"),
    [(("shared", "functions", "workflows"), ()), (("app.py", "infra", "scripts", LAPTOP), ("laptop",))],
    ids=["functions", "laptop"],
)
def test_every_package_that_is_imported_is_declared(places: tuple[str, ...], extras: tuple[str, ...]):
    known, packages = declared(*extras), packages_distributions()
    files = [path for path in python_files(*places) if LAPTOP in places or not within(str(path), LAPTOP)]
    used = {name.partition(".")[0] for path in files for name in imports(path, types=False)}
    ours = {"shared", "functions", "infra", "scripts", "workflows", "tests", "app"}
    foreign = used - ours - set(sys.stdlib_module_names)
    assert foreign, "looks at something"
    missing = {
        name
        for name in foreign
        if not known & {normal(one) for one in packages.get(name, [name])} and COMES_WITH.get(name) not in known
    }
    assert not missing, "declare them in pyproject.toml and run ./scripts/lock"


def test_the_rules_look_at_something():
    assert len(FILES) > 20
    assert (ROOT / "app.py").is_file()
