"""Thresholds from TOML: what an operator writes holds, and what makes no sense is told with its place."""

import tomllib

import pytest

from spark_ops.health.catalogue import CATALOGUE, EXPLAINED_BY
from spark_ops.health.settings import Settings, from_tables


def test_defaults_are_the_catalogues() -> None:
    assert from_tables({}) == Settings()
    assert Settings().of("hot-node", "cpu") == 0.85
    assert Settings().of("under-replicated", "raise_minutes") == 3


def test_a_file_changes_what_it_names() -> None:
    text = '[health]\ncoverage_min = 0.9\n[hot-node]\ncpu = 0.7\nseverity = "crit"\n[conn-churn]\nenabled = false\n'
    changed = from_tables(tomllib.loads(text))
    assert changed.health["coverage_min"] == 0.9
    assert changed.of("hot-node", "cpu") == 0.7
    assert changed.of("hot-node", "loop_lag_ms") == 100
    assert changed.severities == {"hot-node": "crit"}
    assert changed.disabled == {"conn-churn"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[hot-nod]\ncpu = 1", r"\[hot-nod\] is no kind of finding"),
        ("[hot-node]\ncup = 1", r"\[hot-node\] has no cup; there are loop_lag_ms"),
        ("[hot-node]\ncpu = true", r"\[hot-node\] cpu must be a number"),
        ("[hot-node]\ncpu = -1", r"\[hot-node\] cpu must be a number"),
        ("[hot-node]\ncpu = nan", r"\[hot-node\] cpu must be a number"),
        ("[hot-node]\nseverity = 'bad'", r"severity must be one of info, warn, crit"),
        ("cpu = 1", r"cpu stands outside of a table"),
        ("[single-zone]\nx = 1", r"\[single-zone\] has no x; there are raise_minutes"),
    ],
)
def test_what_makes_no_sense_is_told(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_tables(tomllib.loads(text))


def test_the_catalogue_is_whole() -> None:
    """Each kind of spark §3.2 is there, with words for people; causes are kinds."""
    assert len(CATALOGUE) == 31
    for kind in CATALOGUE.values():
        assert kind.title[0].isupper()
        assert kind.advice.endswith(".")
    assert set(EXPLAINED_BY) | {cause for causes in EXPLAINED_BY.values() for cause in causes} <= set(
        CATALOGUE
    )
