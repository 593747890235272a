"""Commands about mirrored queues and policies: outputs and exit codes as RabbitMQ 3.10.8's."""

import json

import pytest

from node.io import control
from tests.node.cli.ctl.fake_node import FakeNode, Run

ALL = '{"ha-mode":"all"}'
POLICIES = {
    "rows": [
        {
            "vhost": "/",
            "name": "ha",
            "pattern": "^ha",
            "apply-to": "queues",
            "definition": ALL,
            "priority": 3,
        }
    ]
}
RINGS = {
    "rings": [
        {
            "vhost": "/",
            "name": "q",
            "master": "n1@h",
            "mirrors": ["n2@h", "n3@h"],
            "synchronised": ["n2@h"],
            "joining": [],
            "ring": ["n1@h", "n2@h", "n3@h"],
            "recoverable": [],
            "version": 7,
            "state": "live",
            "lag": 12,
            "sync": {"n3@h": {"installed": 5, "total": 17, "is_running": True}},
        },
        {
            "vhost": "/",
            "name": "d",
            "master": None,
            "mirrors": [],
            "synchronised": [],
            "ring": [],
            "recoverable": ["n1@h"],
            "version": 9,
            "state": "down",
            "lag": 0,
            "sync": {"n3@h": {"installed": 5, "total": 17, "is_running": False}},
        },
    ]
}


@pytest.mark.parametrize(
    ("words", "asked", "output"),
    [
        (
            ["set_policy", "ha", "^ha", ALL, "--apply-to", "queues", "--priority", "3"],
            (
                "set_policy",
                {
                    "vhost": "/",
                    "name": "ha",
                    "pattern": "^ha",
                    "definition": ALL,
                    "priority": 3,
                    "apply_to": "queues",
                },
            ),
            f'Setting policy "ha" for pattern "^ha" to "{ALL}" with priority "3" for vhost "/" ...\n',
        ),
        (
            ["set_operator_policy", "-p", "v", "op", "^h", '{"max-length":50}', "--priority", "-2"],
            (
                "set_operator_policy",
                {
                    "vhost": "v",
                    "name": "op",
                    "pattern": "^h",
                    "definition": '{"max-length":50}',
                    "priority": -2,
                    "apply_to": "all",
                },
            ),
            'Setting operator policy override "op" for pattern "^h" to "{"max-length":50}" with priority "-2" '
            'for vhost "v" ...\n',
        ),
        (
            ["clear_policy", "ha"],
            ("clear_policy", {"vhost": "/", "name": "ha"}),
            'Clearing policy "ha" on vhost "/" ...\n',
        ),
        (
            ["clear_operator_policy", "op"],
            ("clear_operator_policy", {"vhost": "/", "name": "op"}),
            'Clearing operator policy "op" on vhost "/" ...\n',
        ),
        (
            ["sync_queue", "q"],
            ("sync_queue", {"vhost": "/", "queue": "q"}),
            "Synchronising queue 'q' in vhost '/' ...\n",
        ),
    ],
)
def test_a_command(
    run: Run, fake: FakeNode, words: list[str], asked: tuple[str, object], output: str
) -> None:
    assert run(*words) == (0, output, "")
    assert fake.asked == [asked]


@pytest.mark.parametrize(("is_syncing", "says"), [(True, ""), (False, "not_syncing\n")])
def test_cancel_sync_queue(run: Run, fake: FakeNode, is_syncing: bool, says: str) -> None:
    """If nothing is being synchronised RabbitMQ says so and ends with code 0."""
    fake.answers["cancel_sync_queue"] = {"is_syncing": is_syncing}
    banner = "Stopping synchronising queue 'q' in vhost 'v' ...\n"
    assert run("-p", "v", "cancel_sync_queue", "q") == (0, banner + says, "")


def test_list_policies(run: Run, fake: FakeNode) -> None:
    fake.answers["list_policies"] = POLICIES
    header = "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n"
    assert run("list_policies") == (
        0,
        f'Listing policies for vhost "/" ...\n{header}/\tha\t^ha\tqueues\t{ALL}\t3\n',
        "",
    )
    assert fake.asked == [("list_policies", {"vhost": "/"})]
    assert json.loads(run("list_policies", "--formatter", "json")[1]) == POLICIES["rows"]
    fake.answers["list_operator_policies"] = POLICIES
    assert run("list_operator_policies", "-q")[1].startswith(header)
    assert fake.asked[-1] == ("list_operator_policies", {"vhost": "/"})


def test_no_policies_are_a_blank_line(run: Run, fake: FakeNode) -> None:
    fake.answers["list_policies"] = {"rows": []}
    assert run("list_policies") == (0, 'Listing policies for vhost "/" ...\n\n', "")
    assert json.loads(run("list_policies", "--formatter", "json")[1]) == []


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ((65, "Virtual host 'v' does not exist"), (65, "Virtual host 'v' does not exist\n")),
        ((69, "not_mirrored"), (69, "Error:\nnot_mirrored\n")),
        (
            (69, "Validation failed\n\nno policy provided\n"),
            (69, "Error:\nValidation failed\n\nno policy provided\n\n"),
        ),
    ],
)
def test_what_the_node_refuses(
    run: Run, fake: FakeNode, error: tuple[int, str], says: tuple[int, str]
) -> None:
    fake.answers["set_policy"] = control.ControlError(*error)
    code, output, told = run("-p", "v", "set_policy", "p", "x", "{}")
    assert output == 'Setting policy "p" for pattern "x" to "{}" with priority "0" for vhost "v" ...\n'
    assert (code, told) == says


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["set_policy", "ha"], "not enough arguments."),
        (
            ["set_policy", "ha", "x", ALL, "--priority", "x"],
            "Invalid options for this command:\n--priority : x",
        ),
        (
            ["set_policy", "a", "b", "{}", "--priority", "3.5"],
            "Invalid options for this command:\n--priority : 3.5",
        ),
        (["clear_policy", "x", "--apply-to", "all"], "Invalid options for this command:\n--apply-to : all"),
        (["sync_queue"], "not enough arguments."),
        (["sync_queue", "a", "b"], "too many arguments."),
        (["rebalance"], "not enough arguments."),
    ],
)
def test_a_line_that_makes_no_sense(run: Run, words: list[str], says: str) -> None:
    code, output, error = run(*words)
    assert (code, output) == (64, "")
    assert error.startswith(f"Error (argument validation): {says}\n")


# ---- list_queues, list_rings ----


def test_columns_of_mirrored_queues(run: Run, fake: FakeNode) -> None:
    """Lists of pids as RabbitMQ shows them, and nothing for a queue without mirrors."""
    pids = ["<n2@h.4.2.0>", "<n3@h.5.3.0>"]
    mirrored = {"name": "q", "pid": "<n1@h.3.1.0>", "slave_pids": pids, "synchronised_slave_pids": []}
    fake.answers["list_queues"] = {"queues": [mirrored | {"policy": "ha"}, {"name": "plain"}]}
    columns = ["name", "pid", "slave_pids", "synchronised_slave_pids", "policy"]
    assert run("-s", "list_queues", *columns)[1] == (
        "q\t<n1@h.3.1.0>\t[<n2@h.4.2.0>, <n3@h.5.3.0>]\t[]\tha\nplain\t\t\t\t\n"
    )
    rows = json.loads(run("list_queues", "slave_pids", "recoverable_slaves", "--formatter", "json")[1])
    assert rows == [
        {"slave_pids": pids, "recoverable_slaves": ""},
        {"slave_pids": "", "recoverable_slaves": ""},
    ]


def test_list_rings(run: Run, fake: FakeNode) -> None:
    fake.answers["list_rings"] = RINGS
    assert run("list_rings", "-p", "v") == (
        0,
        "Listing rings of mirrored queues for vhost v ...\n"
        "name\tmaster\tmirrors\tsynchronised\tring\tversion\tstate\tlag\tsync\n"
        "q\tn1@h\t[n2@h, n3@h]\t[n2@h]\t[n1@h, n2@h, n3@h]\t7\tlive\t12\tn3@h: 5 of 17\n"
        "d\t\t[]\t[]\t[]\t9\tdown\t0\tn3@h: 5 of 17, stopped\n",
        "",
    )
    assert fake.asked == [("list_rings", {"vhost": "v"})]
    found = json.loads(run("list_rings", "--formatter", "json")[1])
    assert found[0]["lag"] == 12
    assert found[0]["ring"] == ["n1@h", "n2@h", "n3@h"]


# ---- browse_queue, replay_dead_letters ----


def test_browse_queue(run: Run, fake: FakeNode) -> None:
    row = {
        "number": 7,
        "exchange": "",
        "routing_key": "q",
        "redelivered": False,
        "payload_bytes": 2,
        "payload": "hi",
        "properties": {},
    }
    fake.answers["browse_queue"] = {"messages": [row], "next": None}
    assert run("browse_queue", "q", "--count", "5", "-p", "v") == (
        0,
        "Messages of queue 'q' in vhost 'v' ...\n"
        "number\texchange\trouting_key\tredelivered\tpayload_bytes\tpayload\n"
        "7\t\tq\tfalse\t2\thi\n",
        "",
    )
    assert fake.asked == [("browse_queue", {"vhost": "v", "queue": "q", "first": 1, "count": 5})]


def test_replay_dead_letters(run: Run, fake: FakeNode) -> None:
    fake.answers["replay_dead_letters"] = {"to": {"a": 2}, "failed": {"b": 1}, "looked_at": 3}
    code, output, _ = run("replay_dead_letters", "dead", "--reason", "rejected", "--rate", "10")
    assert (code, output) == (
        0,
        "Replaying dead letters of queue 'dead' in vhost '/' ...\nqueue\treplayed\tfailed\na\t2\t0\nb\t0\t1\n",
    )
    ((name, asked),) = fake.asked
    assert name == "replay_dead_letters"
    assert (asked["reason"], asked["rate"], asked["count"], asked["user"]) == ("rejected", 10, 0, "guest")
    fake.answers["replay_dead_letters"] = {"to": {}, "failed": {}, "looked_at": 3}
    assert (
        "No messages would be replayed; 3 were looked at"
        in run("replay_dead_letters", "dead", "--count-only")[1]
    )
    assert fake.asked[-1][1]["count_only"] is True


# ---- rebalance ----


def test_rebalance(run: Run, fake: FakeNode) -> None:
    fake.answers["rebalance"] = {"nodes": [{"node": "n1@h", "quorum": 0, "classic": 2}]}
    code, output, _ = run("rebalance", "classic", "--vhost-pattern", "/", "--queue-pattern", "ha.*")
    assert code == 0
    assert output.startswith("Re-balancing leaders of classic queues...\n┌")
    assert "Number of quorum queues" in output
    assert "│ n1@h      │ 0                       │ 2                                   │" in output
    assert fake.asked == [("rebalance", {"type": "classic", "vhost_pattern": "/", "queue_pattern": "ha.*"})]
    run("rebalance", "all")
    assert fake.asked[-1] == ("rebalance", {"type": "all", "vhost_pattern": ".*", "queue_pattern": ".*"})


def test_rebalance_of_an_unknown_type(run: Run, fake: FakeNode) -> None:
    text = "Error:\ntype foo is not supported. Try one of all, classic, quorum.\n"
    assert run("rebalance", "foo") == (69, "", text)
    assert fake.asked == []
