"""Callers are known by header, tag and address, and guessers are refused; management §1.0 "Responses", §2.1."""

import base64

import pytest

from node.catalogue.records import User
from node.management import auth
from node.management.reply import ApiError
from node.management.routes import Access


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (basic("guest:guest"), ("guest", "guest")),
        (basic("a:b:c"), ("a", "b:c")),
        (basic("ä:ö"), ("ä", "ö")),
        (basic(":"), ("", "")),
        ("basic " + basic("g:p")[6:], ("g", "p")),
        (basic("nocolon"), None),
        ("Basic !!!", None),
        ("Basic /w==", None),
        ("Bearer x", None),
        ("", None),
        (None, None),
    ],
)
def test_names_and_passwords_of_a_header(header: str | None, expected: tuple[str, str] | None) -> None:
    assert auth.credentials(header) == expected


@pytest.mark.parametrize(
    ("tags", "allowed"),
    [
        ((), {Access.PUBLIC, Access.AUTHENTICATED}),
        (("management",), {Access.PUBLIC, Access.AUTHENTICATED, Access.MANAGEMENT}),
        (("policymaker",), {Access.PUBLIC, Access.AUTHENTICATED, Access.MANAGEMENT, Access.POLICYMAKER}),
        (("monitoring",), {Access.PUBLIC, Access.AUTHENTICATED, Access.MANAGEMENT, Access.MONITORING}),
        (("administrator",), set(Access)),
        (("other",), {Access.PUBLIC, Access.AUTHENTICATED}),
    ],
)
def test_which_tag_lets_do_what(tags: tuple[str, ...], allowed: set[Access]) -> None:
    user = User("u", "", "", tags)
    for access in Access:
        if access in allowed:
            auth.check_access(user, access)
        else:
            with pytest.raises(ApiError) as raised:
                auth.check_access(user, access)
            assert (raised.value.status, raised.value.error) == (401, "not_authorised")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("fe80::1%eth0", False),
        ("10.0.0.1", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_which_addresses_are_of_this_machine(host: str, expected: bool) -> None:
    assert auth.is_loopback(host) is expected


def guess(guesses: auth.Guesses, host: str, name: str, now: float, *, is_right: bool = False) -> bool:
    """A login; whether it was looked at."""
    is_tried = guesses.may_try(host, name, now)
    if is_tried and not is_right:
        guesses.is_wrong(host, name, now)
    return is_tried


def test_who_guesses_on_is_refused_before_the_password_is_looked_at() -> None:
    """One a second from the eleventh on, right or wrong: a refusal says nothing about the password."""
    guesses = auth.Guesses()
    assert all(guess(guesses, "10.0.0.1", "alice", 0.0) for _ in range(guesses.FREE))
    for is_right in (True, False):
        assert not guess(guesses, "10.0.0.1", "alice", 0.5, is_right=is_right)
    assert sum(guess(guesses, "10.0.0.1", "alice", 1 + tenth / 10) for tenth in range(50)) == 5
    assert guess(guesses, "10.0.0.2", "alice", 1.0)
    assert guess(guesses, "10.0.0.1", "bob", 1.0)
    assert guess(guesses, "10.0.0.1", "alice", guesses.WINDOW_S + 10.0)


def test_names_that_are_tried_in_turn_are_counted_together() -> None:
    guesses = auth.Guesses()
    tries = guesses.FREE * guesses.OF_NETWORK
    assert all(guess(guesses, "10.0.0.1", f"user {number}", 0.0) for number in range(tries))
    assert not guess(guesses, "10.0.0.1", "another", 0.05)
    assert sum(guess(guesses, "10.0.0.1", f"more {tenth}", 1 + tenth / 100) for tenth in range(100)) <= 11


def test_a_guesser_has_a_whole_network() -> None:
    guesses = auth.Guesses()
    assert all(guess(guesses, f"2001:db8::{number:x}", "alice", 0.0) for number in range(1, 11))
    assert not guess(guesses, "2001:db8::ffff", "alice", 0.5)
    assert guess(guesses, "2001:db8:0:1::1", "alice", 0.5)
    assert auth.network_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert auth.network_of("fe80::1%eth0") == "fe80::/64"


def test_guessers_are_forgotten_from_the_oldest_on() -> None:
    guesses = auth.Guesses()
    for _ in range(guesses.FREE):
        guess(guesses, "10.0.0.1", "alice", 0.0)
    assert not guess(guesses, "10.0.0.1", "alice", 0.5)
    for number in range(guesses.KEPT_MAX):
        guess(guesses, f"10.1.{number // 256}.{number % 256}", "alice", 0.0)
    assert guess(guesses, "10.0.0.1", "alice", 0.5)
