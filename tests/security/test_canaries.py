"""No secret comes out again: not in logs, answers, events, command lines, data (reliability §6 "Secrets")."""

import base64
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.security.canaries import canary, found_in, found_in_files
from tests.security.session import CONTENTS, NAMES, PASSWORDS, Session

SECRET = {"it": canary("it")}


# --- the search itself ---


@pytest.mark.parametrize(
    "hidden",
    [
        SECRET["it"],
        f"amqp://user:{SECRET['it']}@host",
        base64.b64encode(f"user:{SECRET['it']}".encode()).decode(),
        base64.b64encode(f"users:{SECRET['it']}xyz".encode()).decode(),
        base64.b64encode(f"\0u\0{SECRET['it']}".encode()).decode(),
        quote(base64.b64encode(SECRET["it"].encode()).decode()),
        f"\0user\0{SECRET['it']}".encode().hex(),
        str(list(SECRET["it"].encode())),
    ],
)
def test_a_secret_is_found_in_any_guise(hidden: str) -> None:
    """A secret is found in any guise, without which the tests below prove nothing."""
    assert found_in(f"before {hidden} behind".encode(), SECRET)


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(canary("another"))
    assert found_in_files(tmp_path.iterdir(), SECRET) == {}
    (tmp_path / "log").write_text(SECRET["it"])
    assert list(found_in_files(tmp_path.iterdir(), SECRET)) == [str(tmp_path / "log")]


# --- what came out of the session ---


@pytest.mark.slow
def test_the_session_was_what_it_should_be(session: Session) -> None:
    """Logs at level debug of each node, and lines about what was refused: else there would be nothing to find."""
    assert session.exit_codes == [0] * len(NAMES)
    logs = "\n".join(path.read_text(errors="replace") for path in session.logs() if path.is_file())
    assert "Traceback" not in logs
    for text in (
        "[debug]",
        '"level": "debug"',
        "GET /api/whoami",
        "invalid credentials",
        "user.password.changed",
    ):
        assert text in logs + session.told["amq.rabbitmq.event"], text
    assert "Successfully changed password" in session.told["amq.rabbitmq.log"]


@pytest.mark.slow
def test_no_log_has_a_secret(session: Session) -> None:
    """Console, file, requests over HTTP, at level debug, as text and as JSON."""
    assert found_in_files(session.logs(), PASSWORDS | CONTENTS) == {}


@pytest.mark.slow
def test_no_answer_has_a_secret(session: Session) -> None:
    """Neither `fluffle ctl` and `spark-ops` nor HTTP answer with a secret, even to one who says a password."""
    printed = {what: found_in(text.encode(), PASSWORDS) for what, text in session.printed.items()}
    assert {what: names for what, names in printed.items() if names} == {}


@pytest.mark.slow
def test_no_message_of_the_log_or_of_events_has_a_password(session: Session) -> None:
    """The log exchange has neither passwords nor contents. Events have contents, as RabbitMQ's do, but no password."""
    assert found_in(session.told["amq.rabbitmq.log"].encode(), PASSWORDS | CONTENTS) == []
    assert found_in(session.told["amq.rabbitmq.event"].encode(), PASSWORDS) == []


@pytest.mark.slow
def test_no_password_is_on_disk(session: Session) -> None:
    """Hashes of users' are. The cluster's secret and the key's password stay where the operator put them."""
    kept = session.kept()
    assert any("raft" in path.parts for path in kept)
    assert found_in_files(kept, PASSWORDS) == {}
    assert found_in_files(kept, {"body": CONTENTS["body"]}), "the search does not see what is there"


@pytest.mark.slow
def test_no_command_line_has_a_secret(session: Session) -> None:
    """Everybody on the machine can read those."""
    for name, words in session.arguments.items():
        assert b"start" in words
        assert found_in(words, PASSWORDS) == [], name
