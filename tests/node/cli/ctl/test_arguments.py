"""RabbitMQ's rules for options (management §3.1), as RabbitMQ 3.10.8's tools showed them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.cli.ctl.arguments import parse


@pytest.mark.parametrize(
    "text",
    [
        "-n n1@h list_queues -p v -q name --formatter json -t 5",
        "--node n1@h --vhost v --quiet list_queues name --timeout=5 --formatter=json",
        "list_queues name --node=n1@h -p=v --formatter json -t=5 -q",
    ],
)
def test_options_may_stand_anywhere(text: str) -> None:
    line = parse(text.split())
    assert line.words == ["list_queues", "name"]
    assert line.texts == {"node": "n1@h", "vhost": "v", "formatter": "json", "timeout": "5"}
    assert line.switches == {"quiet": True}
    assert line.invalid == []


@pytest.mark.parametrize(
    ("text", "invalid"),
    [
        ("ping --nope", [("--nope", "")]),
        ("ping --nope=3", [("--nope", "3")]),
        ("-t x ping", [("-t", "x")]),
        ("ping --timeout 1e3", [("--timeout", "1e3")]),
        ("ping --node", [("--node", "")]),
        ("ping --node --quiet", [("--node", "")]),
        ("ping --quiet=true", [("--quiet", "true")]),
        ("ping -z", [("-z", "")]),
        ("ping ---node x", [("---node", "")]),
        ("ping --no-node", [("--no-node", "")]),
    ],
)
def test_what_is_no_option(text: str, invalid: list[tuple[str, str]]) -> None:
    assert parse(text.split()).invalid == invalid


def test_switches_can_be_taken_back() -> None:
    assert parse(["shutdown", "--no-wait"]).switches == {"wait": False}
    assert parse(["x", "--no-table-headers"]).switches == {"no-table-headers": True}
    assert not parse(["x", "--ram", "--no-ram"]).is_set("ram")


def test_an_option_of_another_command_is_foreign() -> None:
    line = parse(["ping", "--offline", "--unit", "mb", "--vhost", "v"])
    assert line.foreign(frozenset()) == [("--offline", ""), ("--unit", "mb")]
    assert line.foreign({"offline", "unit"}) == []


def test_after_two_dashes_all_are_words() -> None:
    assert parse(["set_cluster_name", "--", "--quiet"]).words == ["set_cluster_name", "--quiet"]
    assert parse(["set_cluster_name", "-"]).words == ["set_cluster_name", "-"]
    assert parse(["await_online_nodes", "-1"]).words == ["await_online_nodes", "-1"]


@given(st.lists(st.text(max_size=12)))
def test_any_line_is_taken_apart(arguments: list[str]) -> None:
    line = parse(arguments)
    assert len(line.words) + len(line.texts) + len(line.switches) + len(line.invalid) <= len(arguments)
