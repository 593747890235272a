"""Patterns that cannot backtrack without end, held against `re`."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.catalogue import linear_pattern
from node.catalogue.linear_pattern import TooCostly, matcher
from node.catalogue.pattern_program import search

NAME = b"a" * 255

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        r"\w",
        r"\W",
        r"\d",
        r"\b",
        r"\B",
        "^",
        "$",
        r"\Z",
        r"\A",
        "A",
        "[A-b]",
        r"\.",
        "-",
    ]
)


def patterns(*, has_looks: bool) -> st.SearchStrategy[str]:
    """Return a strategy for patterns of a few atoms.   has_looks: some look ahead or behind."""
    looks = (
        (
            lambda inner: inner.map(lambda one: f"(?={one})"),
            lambda inner: inner.map(lambda one: f"(?!{one})"),
            lambda inner: st.sampled_from(["(?<=a)", "(?<!ab)", "(?<=[ab].)"]),
        )
        if has_looks
        else ()
    )
    return st.recursive(
        ATOMS,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=4).map("".join),
            st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
            st.tuples(
                inner, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?"])
            ).map(lambda both: f"(?:{both[0]}){both[1]}"),
            inner.map(lambda one: f"(?i:{one})"),
            inner.map(lambda one: f"({one})"),
            *(look(inner) for look in looks),
        ),
        max_leaves=8,
    )


def always_a_program(pattern: bytes) -> linear_pattern.Matcher:
    """The program of a pattern, also where `re` would do."""
    flags = re.compile(pattern).flags
    program = linear_pattern._Compiler(flags).program(linear_pattern.parser.parse(pattern))
    return lambda text: search(program, text)


@settings(max_examples=400, deadline=None)
@given(
    pattern=patterns(has_looks=True), texts=st.lists(st.text("abA.-_1\n", max_size=6), min_size=1, max_size=6)
)
def test_a_program_means_what_re_says(pattern: str, texts: list[str]) -> None:
    octets = pattern.encode()
    search = re.compile(octets).search
    try:
        found = always_a_program(octets)
    except TooCostly:
        return
    for text in texts:
        assert found(text.encode()) == (search(text.encode()) is not None), (pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$b",
        r"^(a|a)*$b",
        r"(.*)*\.x",
        r"^(a*)*b",
        r".*.*.*.*.*.*b",
        "a?" * 60 + "a" * 60 + "b",
        r"^[a-z]+\.[a-z]+\.[a-z]+$",
        r"(?!.*b)(a*)*b",
        r"^(?:(?=a*b)a|a)*b",
        r"(?m)^(a+)+$b",
        r"(?:){4000000000}b",
    ],
)
def test_what_re_never_ends_with(pattern: str) -> None:
    assert not matcher(pattern.encode())(NAME)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"^(?!amq\.).*", b"q", b"amq.q"),
        (r"^my\.", b"my.q", b"your.q"),
        (r"^[a-z]+\.[a-z]+\.[a-z]+$", b"a.b.c", b"a.b"),
        (r"^(eu|us)-.*-orders$", b"eu-1-orders", b"asia-1-orders"),
        (r"(?i)^(a+b?)+$", b"AAB", b"AC"),
        ("", b"", None),
    ],
)
def test_ordinary_patterns(pattern: str, matching: bytes, other: bytes | None) -> None:
    assert matcher(pattern.encode())(matching)
    assert other is None or not matcher(pattern.encode())(other)


@pytest.mark.parametrize(
    "pattern",
    [r"(a)\1", r"(?>a*)b", r"a*+b", r"(a)?(?(1)b|c)", "(a+)+" * 200, r"(a+){300}$", r"(?:$){100000000}"],
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(TooCostly):
        matcher(pattern.encode())
