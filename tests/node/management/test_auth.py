"""Who calls; management §1.0 "Responses", §2.1."""

import base64

import pytest

from node.broker.records import User
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


def test_wrong_guesses_are_answered_later_and_later_not_at_all() -> None:
    guesses = auth.Guesses()
    assert [guesses.delay_s("a", 0.0) for _ in range(guesses.FREE)] == [0.0] * guesses.FREE
    assert guesses.delay_s("a", 1.0) == guesses.DELAY_S
    assert guesses.delay_s("b", 1.0) == 0.0
    guesses.waiting = guesses.WAITING_MAX
    assert guesses.delay_s("a", 2.0) is None
    assert guesses.delay_s("a", guesses.WINDOW_S + 3.0) == 0.0


def test_addresses_of_guessers_are_forgotten_from_the_oldest_on() -> None:
    guesses = auth.Guesses()
    for _ in range(guesses.FREE + 1):
        guesses.delay_s("old", 0.0)
    for number in range(guesses.ADDRESSES_MAX):
        guesses.delay_s(str(number), 0.0)
    assert guesses.delay_s("old", 0.0) == 0.0
