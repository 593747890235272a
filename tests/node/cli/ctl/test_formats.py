"""Formatters print as RabbitMQ 3.10.8's do (management §3.1, §3.4); the texts are its own, taken from a live node."""

import json

import pytest

from node.cli.ctl.formats import (
    Done,
    Message,
    NotFormattable,
    Options,
    Outcome,
    Report,
    Table,
    erlang,
    render,
    typed,
)

QUEUES = Table(
    ("name", "messages", "arguments", "durable", "policy"),
    [
        {
            "name": "q2",
            "messages": 0,
            "arguments": {"x-max-length": 5, "x-message-ttl": 60000, "x-dead-letter-exchange": "dlx"},
            "durable": False,
        },
        {"name": "é", "messages": 3, "arguments": {}, "durable": True, "policy": "p"},
    ],
)
ARGUMENTS = '[{"x-max-length",5},{"x-message-ttl",60000},{"x-dead-letter-exchange","dlx"}]'


def text(outcome: Outcome, formatter: str, *, has_header: bool = True) -> str:
    return render(outcome, formatter, Options("n1@h", has_header))


@pytest.mark.parametrize(
    ("formatter", "expected"),
    [
        (
            "table",
            f"name\tmessages\targuments\tdurable\tpolicy\nq2\t0\t{ARGUMENTS}\tfalse\t\né\t3\t[]\ttrue\tp\n",
        ),
        (
            "json",
            '[\n{"name":"q2","messages":0,"arguments":[["x-max-length","signedint",5],'
            '["x-message-ttl","signedint",60000],["x-dead-letter-exchange","longstr","dlx"]],'
            '"durable":false,"policy":null}\n'
            ',{"name":"é","messages":3,"arguments":[],"durable":true,"policy":"p"}\n]\n',
        ),
        (
            "csv",
            '"name","messages","arguments","durable","policy"\n'
            '"q2","0","[{""x-max-length"",5},{""x-message-ttl"",60000},{""x-dead-letter-exchange"",""dlx""}]",'
            '"false",""\n"é","3","[]","true","p"\n',
        ),
    ],
)
def test_a_table(formatter: str, expected: str) -> None:
    assert text(QUEUES, formatter) == expected


def test_json_stream_is_an_object_a_line_with_blank_lines() -> None:
    lines = text(QUEUES, "json_stream").split("\n")
    assert [json.loads(line)["name"] for line in lines[::2] if line] == ["q2", "é"]
    assert set(lines[1::2]) == {""}


def test_pretty_table() -> None:
    table = Table(("name", "n"), [{"name": "a", "n": 10}, {"name": "bcdef", "n": None}])
    assert text(table, "pretty_table") == (
        "┌───────┬────┐\n"
        "│ \x1b[1mname\x1b[0m  │ \x1b[1mn\x1b[0m  │\n"
        "├───────┼────┤\n"
        "│ a     │ 10 │\n"
        "├───────┼────┤\n"
        "│ bcdef │    │\n"
        "└───────┴────┘\n"
    )


def test_erlang_and_string() -> None:
    table = Table(("name", "messages"), [{"name": "q", "messages": 1}, {"name": "é", "messages": 2}])
    assert text(table, "erlang") == '[[{name,<<"q">>},{messages,1}],\n [{name,<<"é"/utf8>>},{messages,2}]]\n'
    assert text(table, "string") == '[name: "q", messages: 1]\n[name: "é", messages: 2]\n'


@pytest.mark.parametrize("formatter", ["table", "csv", "pretty_table"])
def test_without_rows_there_is_no_header(formatter: str) -> None:
    assert text(Table(("name",), []), formatter) == ""


def test_an_empty_list_is_json() -> None:
    assert text(Table(("name",), []), "json") == "[\n]\n"


@pytest.mark.parametrize("formatter", ["table", "csv"])
def test_without_header(formatter: str) -> None:
    assert "name" not in text(QUEUES, formatter, has_header=False)


@pytest.mark.parametrize(
    ("formatter", "expected"),
    [
        ("table", "Ping succeeded\n"),
        ("json", '{"message":"Ping succeeded"}\n'),
        ("erlang", '<<"Ping succeeded">>\n'),
    ],
)
def test_a_message(formatter: str, expected: str) -> None:
    assert text(Message("Ping succeeded"), formatter) == expected


@pytest.mark.parametrize("formatter", ["table", "csv", "pretty_table", "erlang", "string"])
def test_what_has_nothing_to_tell_prints_nothing(formatter: str) -> None:
    assert text(Done(), formatter) == ""


def test_what_has_nothing_to_tell_says_so_in_json() -> None:
    assert text(Done(), "json") == '{"node":"n1@h","result":"ok"}\n'


def test_a_report() -> None:
    report = Report({"b": [1, {"c": None}], "a": "x"}, "\x1b[1mA\x1b[0m\n\nx")
    assert text(report, "json") == '{"a":"x","b":[1,{"c":null}]}\n'
    assert text(report, "table") == "\x1b[1mA\x1b[0m\n\nx\n"
    assert text(report, "erlang") == '#{<<"a">> => <<"x">>,<<"b">> => [1,#{<<"c">> => undefined}]}\n'
    assert "│ A " in text(report, "pretty_table")
    with pytest.raises(NotFormattable):
        text(report, "csv")


def test_a_name_cannot_move_the_cursor() -> None:
    table = Table(("name",), [{"name": "a\x1b[2J\r\nb\tc"}])
    for formatter in ("table", "pretty_table"):
        assert r"a\x1b[2J\r\nb\tc" in text(table, formatter)
    assert json.loads(text(table, "json"))[0]["name"] == "a\x1b[2J\r\nb\tc"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "undefined"),
        (True, "true"),
        (1.5, "1.5"),
        ('a"b\\', '"a\\"b\\\\"'),
        (["monitoring", 1], '["monitoring",1]'),
        ({"x": {"y": 1}}, '[{"x",[{"y",1}]}]'),
    ],
)
def test_erlang_syntax(value: object, expected: str) -> None:
    assert erlang(value) == expected


def test_types_of_arguments() -> None:
    arguments = {"b": True, "i": 1, "l": 1 << 40, "d": 0.5, "s": "x", "v": None, "a": [1, "y"], "t": {"u": 2}}
    assert typed(arguments) == [
        ["b", "bool", True],
        ["i", "signedint", 1],
        ["l", "long", 1 << 40],
        ["d", "double", 0.5],
        ["s", "longstr", "x"],
        ["v", "void", "undefined"],
        ["a", "array", [["signedint", 1], ["longstr", "y"]]],
        ["t", "table", [["u", "signedint", 2]]],
    ]
