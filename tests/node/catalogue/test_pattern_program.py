"""Programs of patterns, searched as automata, held against `re`."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.catalogue import linear_pattern, pattern_program
from node.catalogue.linear_pattern import TooCostly
from node.catalogue.pattern_program import Automaton, Instruction, search
from tests.node.catalogue.test_linear_pattern import patterns

TEXTS = st.lists(st.text("abA.-_1\n", max_size=6), min_size=1, max_size=6)


def program_of(pattern: bytes) -> list[Instruction]:
    """Return the program of a pattern, also where `re` would do."""
    tree = linear_pattern.parser.parse(pattern)
    return linear_pattern._Compiler(re.compile(pattern).flags).program(tree)


@settings(max_examples=600, deadline=None)
@given(pattern=patterns(has_looks=False), texts=TEXTS)
def test_automaton_means_what_re_says(pattern: str, texts: list[str]) -> None:
    octets = pattern.encode()
    try:
        automaton = Automaton(program_of(octets))
    except TooCostly:
        return
    found = re.compile(octets).search
    for text in texts * 2:  # the second time it knows the ways
        assert automaton.search(text.encode()) == (found(text.encode()) is not None), (pattern, text)


@pytest.mark.parametrize("pattern", [r"(a|b)*a(a|b){7}$", r"\b(a+b?)+\B", r"(?m)^(a|ba)+$"])
def test_automaton_forgets_its_states_at_the_limit(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_program, "WAYS_MAX", 5)
    automaton, found = Automaton(program_of(pattern.encode())), re.compile(pattern.encode()).search
    for number in range(2**10):
        text = bytes(b"ab\n"[number >> at & 1 if at % 4 else number % 3] for at in range(10))
        assert automaton.search(text) == (found(text) is not None), text
        assert automaton._ways <= 5
        assert sum(len(state.ways) for state in automaton._states.values()) <= 5


def test_known_text_asks_no_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    automaton = Automaton(program_of(rb"^(a+)+$"))
    assert not automaton.search(b"a" * 254 + b"b")
    monkeypatch.setattr(automaton, "_after", None)  # to ask would fail
    assert not automaton.search(b"a" * 100 + b"b")


def test_search_with_looks_ends_at_the_limit_of_steps() -> None:
    program = program_of(rb"(?=.*b)c")  # looks to the end of the text from each place
    assert search(program, b"a" * 50 + b"cb")
    assert not search(program, b"a" * 250 + b"cb")


def test_looks_at_one_place_are_no_matter() -> None:
    program = program_of(rb"^(?!.*test).*-.*-.*-.*$")
    assert search(program, b"a" * 250 + b"-b-c-")
    assert not search(program, b"a" * 240 + b"-b-test-")
