"""Commands about users: banners, outputs and exit codes as a live RabbitMQ 3.10.8's (management §3.2)."""

import io
import json

import pytest

from node.io import control
from tests.node.cli.ctl.fake_node import NODE, FakeNode, Run

DONE = (
    "Done. Don't forget to grant the user permissions to some virtual hosts! "
    "See 'fluffle ctl help set_permissions' to learn more."
)


@pytest.mark.parametrize(
    ("words", "asked", "output"),
    [
        (
            "add_user u1 p1",
            ("add_user", {"user": "u1", "password": "p1"}),
            f'Adding user "u1" ...\n{DONE}\n',
        ),
        ("delete_user u3", ("delete_user", {"user": "u3"}), 'Deleting user "u3" ...\n'),
        (
            "change_password u1 p2",
            ("change_password", {"user": "u1", "password": "p2"}),
            'Changing password for user "u1" ...\n',
        ),
        ("clear_password u1", ("clear_password", {"user": "u1"}), 'Clearing password for user "u1" ...\n'),
        (
            "authenticate_user u1 p2",
            ("authenticate_user", {"user": "u1", "password": "p2"}),
            'Authenticating user "u1" ...\nSuccess\n',
        ),
        (
            "set_user_tags u1 monitoring administrator",
            ("set_user_tags", {"user": "u1", "tags": ["monitoring", "administrator"]}),
            'Setting tags for user "u1" to [monitoring, administrator] ...\n',
        ),
        (
            "set_user_tags u1",
            ("set_user_tags", {"user": "u1", "tags": []}),
            'Setting tags for user "u1" to [] ...\n',
        ),
        (
            'set_user_limits u1 {"max-connections":5}',
            ("set_user_limits", {"user": "u1", "limits": '{"max-connections":5}'}),
            'Setting user limits to "{"max-connections":5}" for user "u1" ...\n',
        ),
        (
            "clear_user_limits u1 all",
            ("clear_user_limits", {"user": "u1", "limit": "all"}),
            'Clearing all limits for user "u1" ...\n',
        ),
        (
            "clear_user_limits u1 max-channels",
            ("clear_user_limits", {"user": "u1", "limit": "max-channels"}),
            'Clearing "max-channels" limit for user "u1" ...\n',
        ),
    ],
)
def test_a_command(run: Run, fake: FakeNode, words: str, asked: tuple[str, object], output: str) -> None:
    assert run(*words.split()) == (0, output, "")
    assert fake.asked == [asked]


def test_list_users(run: Run, fake: FakeNode) -> None:
    fake.answers["list_users"] = {
        "rows": [{"user": "guest", "tags": ["administrator"]}, {"user": "x", "tags": []}]
    }
    assert run("list_users")[1] == "Listing users ...\nuser\ttags\nguest\t[administrator]\nx\t[]\n"
    assert run("list_users", "--formatter", "json")[1] == (
        '[\n{"user":"guest","tags":["administrator"]}\n,{"user":"x","tags":[]}\n]\n'
    )
    assert run("list_users", "--formatter", "csv")[1] == (
        '"user","tags"\n"guest","[administrator]"\n"x","[]"\n'
    )
    assert run("-q", "list_users", "--formatter", "erlang")[1] == (
        '[[{user,<<"guest">>},{tags,[administrator]}],\n [{user,<<"x">>},{tags,[]}]]\n'
    )


def test_limits_are_json_texts(run: Run, fake: FakeNode) -> None:
    fake.answers["list_user_limits"] = {"rows": [{"name": "u1", "limits": {"max-connections": 5}}]}
    assert run("list_user_limits", "--user", "u1")[1] == (
        'Listing limits for user "u1" ...\n{"max-connections":5}\n'
    )
    assert run("list_user_limits", "--global")[1] == (
        'Listing limits for all users ...\nuser\tlimits\nu1\t{"max-connections":5}\n'
    )
    assert json.loads(run("list_user_limits", "--formatter", "json")[1]) == {
        "message": '{"max-connections":5}'
    }
    assert [asked["user"] for _, asked in fake.asked] == ["u1", None, "guest"]
    fake.answers["list_user_limits"] = {"rows": []}
    assert run("list_user_limits")[1] == 'Listing limits for user "guest" ...\n{}\n'


@pytest.mark.parametrize(("command", "code"), [("add_user", 65), ("authenticate_user", 70)])
def test_a_password_from_standard_input(
    run: Run, fake: FakeNode, monkeypatch: pytest.MonkeyPatch, command: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert run(command, "u1")[0] == 0
    assert fake.asked == [(command, {"user": "u1", "password": "secret"})]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    got, output, error = run(command, "u1")
    assert (got, output.endswith("Password: \n")) == (code, True)
    assert error == "Error:\nPassword is not provided via argument or stdin\n"


def test_what_the_node_refuses(run: Run, fake: FakeNode) -> None:
    """65 has its text as it is: of some commands with a title, of others without."""
    fake.answers["add_user"] = control.ControlError(70, 'User "u1" already exists')
    assert run("add_user", "u1", "p") == (
        70,
        'Adding user "u1" ...\n',
        'Error:\nUser "u1" already exists\n',
    )
    fake.answers["delete_user"] = control.ControlError(67, 'User "u" does not exist')
    assert run("-q", "delete_user", "u") == (67, "", 'Error:\nUser "u" does not exist\n')
    fake.answers["authenticate_user"] = control.ControlError(65, "Error:\nError: failed")
    assert run("-q", "authenticate_user", "u", "p") == (65, "", "Error:\nError: failed\n")


def test_added_in_json(run: Run) -> None:
    assert json.loads(run("add_user", "u", "p", "--formatter", "json")[1]) == {
        "message": DONE.replace("fluffle ctl", "rabbitmqctl"),
        "node": NODE,
        "status": "ok",
    }
