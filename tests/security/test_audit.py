"""The audit covers what users install, and its report is judged here. It needs the network itself: `make audit`."""

from typing import Any

import pytest

from tests.security.audit import EX_KNOWN, EX_OK, EX_UNAVAILABLE, closure, verdict

REQUIREMENTS = {
    "ours": ["web>=1", 'big>=4; extra == "spark"', 'tests; extra == "dev"', 'old; python_version < "3"'],
    "web": ["Wire_Format[fast]", "core"],
    "wire-format": ['speed; extra == "fast"', 'slow; extra == "slow"', "core"],
    "core": ["web"],
}


def requires(name: str) -> list[str]:
    return REQUIREMENTS.get(name, [])


def test_what_users_install_is_audited_and_nothing_else() -> None:
    runtime = {"web", "wire-format", "core", "speed"}
    assert closure("ours", [], requires) == runtime
    assert closure("ours", ["spark"], requires) == runtime | {"big"}


def report(*packages: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(packages), "fixes": []}


CLEAN = {"name": "web", "version": "1", "vulns": []}
BAD = {"name": "core", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"], "aliases": []}]}
UNASKED = {"name": "big", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "exit_code"),
    [
        ([CLEAN], EX_OK),
        ([CLEAN, BAD], EX_KNOWN),
        ([CLEAN, BAD, UNASKED], EX_KNOWN),
        ([CLEAN, UNASKED], EX_UNAVAILABLE),
        ([], EX_UNAVAILABLE),
    ],
)
def test_only_an_answer_about_all_is_clean(packages: list[dict[str, Any]], exit_code: int) -> None:
    assert verdict(report(*packages)).exit_code == exit_code


def test_a_vulnerability_is_told_with_its_cure() -> None:
    assert verdict(report(BAD)).known == ["core 2: PYSEC-1, fixed in 3"]
