"""A node's image is built of packages pinned by version and hash, within the bounds that were tried."""

import re
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "deploy/requirements.txt").read_text()
PINS = {canonicalize_name(name): pin for name, pin in re.findall(r"^(\S+)==(\S+) \\$", LOCK, re.MULTILINE)}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BOUNDS = [Requirement(each) for each in PROJECT["dependencies"]]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_a_node_gets_versions_that_were_tried(bound: Requirement) -> None:
    assert PINS[canonicalize_name(bound.name)] in bound.specifier


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_versions_have_an_upper_bound(bound: Requirement) -> None:
    assert any(each.operator in ("<", "==") for each in bound.specifier)
    assert version(bound.name) in bound.specifier, "what the tests run with"


def needs(name: str) -> list[Requirement]:
    """Return what a package needs without extras."""
    found = [Requirement(text) for text in requires(name) or ()]
    return [each for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]


@pytest.mark.parametrize("name", sorted(PINS))
def test_what_packages_need_is_pinned_too(name: str) -> None:
    for needed in needs(name):
        assert PINS[canonicalize_name(needed.name)] in needed.specifier, str(needed)


def test_nothing_is_pinned_that_no_package_needs() -> None:
    wanted: set[str] = set()
    left = [each.name for each in BOUNDS]
    while left:
        name = canonicalize_name(left.pop())
        if name not in wanted:
            wanted.add(name)
            left += [each.name for each in needs(name)]
    assert set(PINS) == wanted


def test_each_has_hashes_and_nothing_says_where_from() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    blocks = re.split(r"(?<!\\)\n", "\n".join(lines))
    assert len(blocks) == len(PINS)
    for block in blocks:
        assert re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+", block), block
    assert "://" not in LOCK
    assert "index" not in LOCK


def test_the_image_is_built_of_them() -> None:
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    assert "--require-hashes -r /wheels/requirements.txt" in dockerfile
    assert "!deploy/requirements.txt" in (ROOT / ".dockerignore").read_text().splitlines()
