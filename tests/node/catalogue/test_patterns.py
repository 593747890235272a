"""Regular expressions over names (amqp-behaviour §6.1, §6.7)."""

import pytest

from node.catalogue.patterns import PatternInvalid, compile_pattern, matches


def test_search_is_unanchored() -> None:
    """§6.7: `bx` matches `zzbxzz`."""
    assert matches("bx", "zzbxzz")
    assert not matches("^bx", "zzbxzz")


def test_octets_are_matched_not_characters() -> None:
    """RabbitMQ runs its expressions without UTF-8: é is two octets."""
    assert matches("^..$", "é")
    assert not matches("^.$", "é")
    assert matches("é", "café")
    assert matches("^a.$", "a\udcff")


@pytest.mark.parametrize(
    "bad", ["(", "*", "a)", "[", r"\p{L}", "(?<n>a)", "[[:alpha:]]", "(" * 5000, "a{99999999999}", r"(a)\1"]
)
def test_an_invalid_pattern_matches_nothing_and_says_why(bad: str) -> None:
    assert not matches(bad, "a")
    with pytest.raises(PatternInvalid):
        compile_pattern(bad)


def test_a_nested_set_is_read_as_pcre_does(recwarn: pytest.WarningsRecorder) -> None:
    assert matches("^[[a]$", "[")
    assert not list(recwarn)


def test_a_pattern_that_backtracks_without_end_does_not_stall_the_broker() -> None:
    """§6.1: RabbitMQ's matcher gives up; here it is matched without backtracking."""
    assert not matches("^(a+)+$", "a" * 250 + "b")
    assert matches("^(a+)+$", "a" * 250)
