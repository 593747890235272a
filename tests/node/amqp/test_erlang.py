"""The renderings of amqp-behaviour §1.7 and §4.1. Long terms were seen with io_lib:format of Erlang 25."""

import pytest

from node.amqp.erlang import binary_literal, octet_list, octets, string_literal, tagged_tuple


@pytest.mark.parametrize(
    ("data", "literal"),
    [
        (b"", "<<>>"),
        (b"abc", '<<"abc">>'),
        (b"\x01\x02\x03", "<<1,2,3>>"),
        (b" ", '<<" ">>'),
        (b'a"b', '<<"a\\"b">>'),
        (b"a\\b", '<<"a\\\\b">>'),
        (b"\n\t\r\v\b\f\x1b", '<<"\\n\\t\\r\\v\\b\\f\\e">>'),
        (b"\x7f", "<<127>>"),
        (b"\x9f", "<<159>>"),
        (b"\xff", '<<"\udcff">>'),
        ("é".encode(), '<<"é">>'),
        ("日本".encode(), "<<230,151,165,230,156,172>>"),
    ],
)
def test_binaries(data: bytes, literal: str) -> None:
    assert binary_literal(data) == literal


def test_an_octet_list_never_shows_text() -> None:
    assert octet_list(b"ab\x00") == "<<97,98,0>>"
    assert octet_list(b"") == "<<>>"


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        (".5", '".5"'),
        (" ", '" "'),
        ('"', '"\\""'),
        ("é", '"é"'),
        ("\0", "[0]"),
        ("日", "[230,151,165]"),
        ("", "[]"),
    ],
)
def test_strings(text: str, literal: str) -> None:
    assert string_literal(text) == literal
    assert string_literal(text.encode()) == literal


@pytest.mark.parametrize(
    ("kind", "payload", "text"),
    [
        (1, b"\x00\x14\x00\x0a", "type 1, all octets = <<0,20,0,10>>"),
        (8, b"x", 'type 8, all octets = <<"x">>'),
        (8, b"", "type 8, all octets = <<>>"),
        (9, b"abc", 'type 9, all octets = <<"abc">>'),
        (1, b"0123456789abcdef", 'type 1, all octets = <<"0123456789abcdef">>'),
        (1, b"0123456789abcdefg", 'type 1, first 16 octets = <<"0123456789abcdef">>'),
        (2, bytes(17), "type 2, first 16 octets = <<0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0>>"),
    ],
)
def test_octets_of_1_7(kind: int, payload: bytes, text: str) -> None:
    assert octets(kind, payload) == text


def test_a_long_binary_is_broken_at_column_80() -> None:
    data = bytes([209, 26, 149, 83, 90, 112, 142, 108, 237, 182, 240, 161, 142, 104, 215, 125]) + b"more"
    assert octets(1, data) == (
        "type 1, first 16 octets = <<209,26,149,83,90,112,142,108,237,182,240,161,142,\n"
        "                            104,215,125>>"
    )


def test_the_last_number_of_a_broken_binary_needs_no_room_for_a_comma() -> None:
    data = bytes([160, 250, 92, 146, 250, 80, 25, 28, 169, 125, 62, 135, 33, 83, 130, 174])
    assert octets(1, data) == (
        "type 1, all octets = <<160,250,92,146,250,80,25,28,169,125,62,135,33,83,130,174>>"
    )


def test_a_tuple_on_one_line() -> None:
    assert tagged_tuple("value_too_large", 315360000001) == "{value_too_large,315360000001}"
    assert tagged_tuple("leftover_string", string_literal(".5")) == '{leftover_string,".5"}'
    assert tagged_tuple("unacceptable_type_in_header", '"CC"', "longstr") == (
        '{unacceptable_type_in_header,"CC",longstr}'
    )


def test_a_tuple_that_passes_column_80_is_broken() -> None:
    after = octets(1, bytes([113, 88, 219, 82, 7, 44, 184])) + ": "
    assert tagged_tuple("invalid_frame_end_marker", 131, after=after) == (
        "{invalid_frame_end_marker,\n                                                  131}"
    )


def test_the_column_is_counted_from_the_last_newline() -> None:
    after = "x" * 90 + "\n"
    assert tagged_tuple("frame_too_large", 1, 2, after=after) == "{frame_too_large,1,2}"


def test_elements_are_broken_one_by_one() -> None:
    after = 'type 1, first 16 octets = <<"a\\nb\\t\\r\\v\\b\\f\\e">>: '
    assert tagged_tuple("frame_too_large", 131073, 131064, after=after) == (
        "{frame_too_large,131073,\n                                                   131064}"
    )
