"""The syntax of configuration files, as RabbitMQ 3.10.8's own parser reads them."""

import pytest

from node.config.file import ConfigError, parse


def pairs(text: str) -> list[tuple[str, str]]:
    return [(setting.key, setting.value) for setting in parse(text.encode(), "f.conf")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a.b = c", ("a.b", "c")),
        ("\t a\t=\t1\t", ("a", "1")),
        ("a = 1\r", ("a", "1")),
        ("a = b = c", ("a", "b = c")),
        ("a = 1 2", ("a", "1 2")),
        ("a = c # x", ("a", "c")),
        ("a = c#x", ("a", "c")),
        ('a = "c d"', ("a", '"c d"')),
        ("a = x'y", ("a", "x'y")),
        ("a = 'it", ("a", "'it")),
        ("default_user_tags.my-tag = true", ("default_user_tags.my-tag", "true")),
        (r"loopback_users.a\.b = true", (r"loopback_users.a\.b", "true")),
        ("a = $(HOME)", ("a", "$(HOME)")),
        # Newer than 3.10: single quotes protect.
        ("a = 'c # x'", ("a", "c # x")),
        ("a = 'c' # x", ("a", "c")),
        ("a = ''", ("a", "")),
    ],
)
def test_a_setting(line: str, expected: tuple[str, str]) -> None:
    assert pairs(line) == [expected]


def test_an_escaped_dot_does_not_part_words() -> None:
    (setting,) = parse(rb"loopback_users.a\.b = true", "f.conf")
    assert setting.words == ("loopback_users", "a.b")


def test_comments_blank_lines_and_a_byte_order_mark_say_nothing() -> None:
    assert parse(b"\xef\xbb\xbf## z\n\n  # y\n   \n", "f.conf") == []


def test_places_count_lines_from_one() -> None:
    assert [s.place for s in parse(b"# c\na = 1\n\na = 2\n", "x/f.conf")] == ["x/f.conf:2", "x/f.conf:4"]


@pytest.mark.parametrize(
    "line", ["junk", "a b = 1", "a =", "a = # c", "a..b = 1", ".a = 1", "a$ = 1", "= 1", "a@b = 1"]
)
def test_what_is_no_setting_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"x = 1\n{line}\n".encode(), "f.conf")
    (problem,) = caught.value.problems
    assert problem.startswith("f.conf:2: not a setting; allowed:")


def test_every_bad_line_is_named_and_none_is_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(b"default_pass s3cret\nok = 1\n\xff = 2\n", "f.conf")
    assert [problem.split(": ")[0] for problem in caught.value.problems] == ["f.conf:1", "f.conf:3"]
    assert "s3cret" not in str(caught.value)
