"""The directory of a migration survives crashes, and addresses hide their credentials."""

import os
from pathlib import Path

import pytest

from node.cli.migrate.addresses import AddressError, address
from node.cli.migrate.state import State, StateError
from node.migrate.history import stage_record


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    """A crash may tear the last line, which was not acted on."""
    state = State(tmp_path)
    state.append(state.history(), [stage_record("started", "out")])
    with open(tmp_path / "journal.log", "ab") as file:
        file.write(b'{"what":"sta')
    assert state.history().stage == "started"
    state.append(state.history(), [stage_record("consumers", "out")])
    assert state.history().stage == "consumers"
    assert len((tmp_path / "journal.log").read_bytes().splitlines()) == 2


def test_a_journal_with_one_torn_line(tmp_path: Path) -> None:
    (tmp_path / "journal.log").write_bytes(b"x" * 100_000)
    state = State(tmp_path)
    state.append(state.history(), [stage_record("started", "out")])
    assert state.history().stage == "started"


def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / "journal.log").write_bytes(b"nonsense\n{}\n")
    with pytest.raises(StateError, match="line 1"):
        State(tmp_path).history()


def test_one_command_changes_things_at_a_time(tmp_path: Path) -> None:
    with State(tmp_path).lock(), pytest.raises(StateError, match="another"), State(tmp_path).lock():
        pass


def test_the_password_stays(tmp_path: Path) -> None:
    first, is_new = State(tmp_path).password()
    assert is_new
    assert State(tmp_path).password() == (first, False)


@pytest.mark.parametrize("text", [None, "[]", "{", "5"])
def test_no_plan(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(StateError):
        State(tmp_path).read_plan()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rabbit", "http://rabbit:15672"),
        ("https://u:s%20ecret@rabbit/api/", "https://rabbit:15671"),
        ("http://[fd00::1]:1/x", "http://[fd00::1]:1/x"),
    ],
)
def test_addresses_are_shown_without_credentials(url: str, shown: str) -> None:
    found = address(url, {})
    assert found.shown == shown
    assert "ecret" not in repr(found)


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:port", "http://u:secret@a?x=1"])
def test_bad_addresses(url: str) -> None:
    with pytest.raises(AddressError) as caught:
        address(url, {})
    assert "secret" not in str(caught.value)


def test_passwords_come_from_a_file(tmp_path: Path) -> None:
    """A file that others may read is refused."""
    file = tmp_path / "netrc"
    file.write_text("machine rabbit login ops password secret\n")
    os.chmod(file, 0o600)
    environment = {"FLUFFLE_NETRC": str(file)}
    assert address("rabbit", environment).authorization == "Basic b3BzOnNlY3JldA=="
    assert address("other", environment).authorization == "Basic Z3Vlc3Q6Z3Vlc3Q="
    os.chmod(file, 0o644)
    with pytest.raises(AddressError, match="chmod 600"):
        address("rabbit", environment)
