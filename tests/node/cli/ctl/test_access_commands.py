"""Commands about vhosts and permissions: as a live RabbitMQ 3.10.8's (management §3.2, §3.3)."""

import json

import pytest

from node.io import control
from tests.node.cli.ctl.fake_node import NODE, FakeNode, Run


@pytest.mark.parametrize(
    ("words", "asked", "output"),
    [
        (
            "add_vhost v2 --description d --tags t1,t2 --default-queue-type quorum",
            {"vhost": "v2", "description": "d", "tags": ["t1", "t2"], "default_queue_type": "quorum"},
            'Adding vhost "v2" ...\n',
        ),
        (
            "add_vhost v1",
            {"vhost": "v1", "description": "", "tags": [], "default_queue_type": ""},
            'Adding vhost "v1" ...\n',
        ),
        ("delete_vhost v1", {"vhost": "v1"}, 'Deleting vhost "v1" ...\n'),
        (
            "set_vhost_tags v1 a b",
            {"vhost": "v1", "tags": ["a", "b"]},
            'Setting tags for virtual host "v1" to [a, b] ...\n',
        ),
        (
            "trace_on -p v1",
            {"vhost": "v1"},
            'Starting tracing for vhost "v1" ...\nTrace enabled for vhost v1\n',
        ),
        (
            "trace_off",
            {"vhost": "/"},
            'Stopping tracing for vhost "/" ...\nTrace disabled for vhost /\n',
        ),
        (
            "restart_vhost -p v1",
            {"vhost": "v1"},
            f"Trying to restart vhost 'v1' on node '{NODE}' ...\n"
            f"Vhost 'v1' is already running on node '{NODE}'\n",
        ),
        (
            'set_vhost_limits -p v1 {"max-queues":10}',
            {"vhost": "v1", "limits": '{"max-queues":10}'},
            'Setting vhost limits to "{"max-queues":10}" for vhost "v1" ...\n',
        ),
        ("clear_vhost_limits -p v1", {"vhost": "v1"}, 'Clearing vhost "v1" limits ...\n'),
        (
            "set_permissions -p v1 u1 .* ^a [b]",
            {"vhost": "v1", "user": "u1", "configure": ".*", "write": "^a", "read": "[b]"},
            'Setting permissions for user "u1" in vhost "v1" ...\n',
        ),
        (
            "clear_permissions u1",
            {"vhost": "/", "user": "u1"},
            'Clearing permissions for user "u1" in vhost "/" ...\n',
        ),
        (
            "set_topic_permissions u1 amq.topic a.* b.*",
            {"vhost": "/", "user": "u1", "exchange": "amq.topic", "write": "a.*", "read": "b.*"},
            'Setting topic permissions on "amq.topic" for user "u1" in vhost "/" ...\n',
        ),
        (
            "clear_topic_permissions u1 amq.topic",
            {"vhost": "/", "user": "u1", "exchange": "amq.topic"},
            'Clearing topic permissions on "amq.topic" for user "u1" in vhost "/" ...\n',
        ),
        (
            "clear_topic_permissions u1",
            {"vhost": "/", "user": "u1"},
            'Clearing topic permissions for user "u1" in vhost "/" ...\n',
        ),
    ],
)
def test_a_command(run: Run, fake: FakeNode, words: str, asked: object, output: str) -> None:
    assert run(*words.split()) == (0, output, "")
    assert fake.asked == [(words.split()[0], asked)]


VHOST = {
    "name": "/",
    "description": "Default virtual host",
    "tags": [],
    "default_queue_type": "undefined",
    "tracing": False,
    "cluster_state": {"n-1@h": "running"},
}


def test_list_vhosts(run: Run, fake: FakeNode) -> None:
    fake.answers["list_vhosts"] = {"rows": [VHOST, {**VHOST, "name": "v2", "tags": ["t1", "t2"]}]}
    assert run("list_vhosts")[1] == "Listing vhosts ...\nname\n/\nv2\n"
    columns = ("name", "tags", "default_queue_type", "tracing", "cluster_state")
    assert run("-s", "list_vhosts", *columns)[1] == (
        "/\t[]\tundefined\tfalse\t[{'n-1@h', running}]\nv2\t[t1, t2]\tundefined\tfalse\t[{'n-1@h', running}]\n"
    )
    found = json.loads(run("list_vhosts", *columns, "--formatter", "json")[1])
    assert found[1] == {
        "name": "v2",
        "tags": ["t1", "t2"],
        "default_queue_type": "undefined",
        "tracing": False,
        "cluster_state": {"n-1@h": "running"},
    }
    assert run("list_vhosts", "nope")[0] == 64


PERMISSION = {"vhost": "v1", "user": "u1", "configure": ".*", "write": "^a", "read": "[b]"}


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (
            "list_permissions -p v1",
            'Listing permissions for vhost "v1" ...\nuser\tconfigure\twrite\tread\nu1\t.*\t^a\t[b]\n',
        ),
        (
            "list_user_permissions u1",
            'Listing permissions for user "u1" ...\nvhost\tconfigure\twrite\tread\nv1\t.*\t^a\t[b]\n',
        ),
    ],
)
def test_permissions(run: Run, fake: FakeNode, words: str, output: str) -> None:
    """Without permissions RabbitMQ prints an empty line, and `[]` as JSON."""
    name = words.split()[0]
    fake.answers[name] = {"rows": [PERMISSION]}
    assert run(*words.split())[1] == output
    fake.answers[name] = {"rows": []}
    assert run("-q", *words.split())[1] == "\n"
    assert run("-q", *words.split(), "--formatter", "json")[1] == "[]\n"


def test_topic_permissions_of_a_user_have_no_header(run: Run, fake: FakeNode) -> None:
    rows = {"rows": [{"vhost": "v1", "user": "u1", "exchange": "amq.topic", "write": "a.*", "read": "b.*"}]}
    fake.answers = {"list_topic_permissions": rows, "list_user_topic_permissions": rows}
    assert run("-q", "list_topic_permissions", "-p", "v1")[1] == (
        "user\texchange\twrite\tread\nu1\tamq.topic\ta.*\tb.*\n"
    )
    assert run("-q", "list_user_topic_permissions", "u1")[1] == "v1\tamq.topic\ta.*\tb.*\n"


def test_limits_of_vhosts(run: Run, fake: FakeNode) -> None:
    fake.answers["list_vhost_limits"] = {"rows": [{"name": "v1", "limits": {"max-queues": 10}}]}
    assert run("list_vhost_limits", "-p", "v1")[1] == (
        'Listing limits for vhost "v1" ...\n{"max-queues":10}\n'
    )
    assert run("list_vhost_limits", "--global")[1] == (
        'Listing limits for all vhosts ...\nvhost\tlimits\nv1\t{"max-queues":10}\n'
    )
    fake.answers["list_vhost_limits"] = {"rows": []}
    assert run("-q", "list_vhost_limits")[1] == "\n"
    assert run("list_vhost_limits", "--formatter", "json")[1] == "[]\n"


def test_a_vhost_that_is_not_there(run: Run, fake: FakeNode) -> None:
    fake.answers["list_permissions"] = control.ControlError(65, "Virtual host 'nov' does not exist")
    assert run("list_permissions", "-p", "nov") == (
        65,
        'Listing permissions for vhost "nov" ...\n',
        "Virtual host 'nov' does not exist\n",
    )
