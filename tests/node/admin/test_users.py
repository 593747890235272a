"""Users as operators change them: what RabbitMQ 3.10.8 does (management §1.9, §2.3)."""

import pytest

from node.admin import users
from node.catalogue.access import check_login
from node.catalogue.passwords import ALGORITHMS, SHA256, hash_password
from node.catalogue.records import User, UserLimits
from node.config.config import AuthOptions
from tests.kit.office import Office

UNSAFE = "u\r\n2026-11-22 00:00:00.000000+00:00 [info] <0.1.0> forged\x1b[31m"


def can_log_in(office: Office, name: str, password: str) -> bool:
    return isinstance(check_login(office.catalogue, name, password, is_loopback=True), User)


def test_put_creates_and_replaces() -> None:
    office = Office()
    assert office.do(users.put_user(office.admin, "u", password="p", tags=["monitoring", "x"]))
    assert office.logged() == [
        "[info] Created user 'u'",
        "[info] Successfully set user tags for user 'u' to [monitoring,x]",
    ]
    assert can_log_in(office, "u", "p")
    assert not office.do(users.put_user(office.admin, "u", password="q", tags=[]))
    assert office.logged() == [
        "[info] Successfully changed password for user 'u'",
        "[info] Successfully set user tags for user 'u' to []",
    ]
    assert can_log_in(office, "u", "q")
    assert not can_log_in(office, "u", "p")


def test_without_password_nobody_logs_in() -> None:
    office = Office()
    office.do(users.put_user(office.admin, "u", password="p", tags=[]))
    office.do(users.put_user(office.admin, "u", tags=[]))
    assert not can_log_in(office, "u", "p")
    assert "[info] Clearing password for 'u'" in office.logged()
    office.do(users.put_user(office.admin, "u", password_hash="", tags=[]))
    assert not can_log_in(office, "u", "")


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_hashes_of_all_three_algorithms(algorithm: str) -> None:
    """§2.3: the algorithm is stored per user."""
    office = Office()
    given = hash_password("secret", b"salt", algorithm)
    change = users.put_user(
        office.admin, "u", password_hash=given, hashing_algorithm=algorithm, tags=["administrator"]
    )
    office.do(change)
    assert can_log_in(office, "u", "secret")
    user = office.catalogue.user("u")
    assert user is not None
    assert (user.password_hash, user.hashing_algorithm) == (given, algorithm)


def test_an_algorithm_beside_a_password_is_ignored() -> None:
    """§2.3: the node's own is used."""
    office = Office()
    office.do(users.put_user(office.admin, "u", password="p", hashing_algorithm="nope", tags=[]))
    user = office.catalogue.user("u")
    assert user is not None
    assert user.hashing_algorithm == SHA256


def test_refused_users() -> None:
    office = Office(AuthOptions(password_length_min=3))
    put = users.put_user
    both = put(office.admin, "u", password="ppp", password_hash="YWJj", tags=[])
    assert office.fails(both) == ("invalid", "both_password_and_password_hash_are_provided")
    assert office.fails(put(office.admin, "u", password_hash="###", tags=[])) == (
        "invalid",
        ["not_base64", "###"],
    )
    unknown = put(office.admin, "u", password_hash="YWJj", hashing_algorithm="crc", tags=[])
    assert office.fails(unknown) == ("invalid", ["unknown_hashing_algorithm", "crc"])
    assert office.fails(put(office.admin, "u", password="pp", tags=[])) == (
        "invalid",
        "credential_validation_failed",
    )
    assert office.fails(put(office.admin, "", password="ppp", tags=[]))[0] == "invalid"
    assert office.fails(put(office.admin, "u" * 256, password="ppp", tags=[]))[0] == "invalid"
    limits = put(office.admin, "u", password="ppp", tags=[], limits={"max-connections": "x"})
    assert office.fails(limits) == (
        "invalid",
        'max-connections should be a number, actually was <<"x">>',
    )
    assert [user.name for user in office.catalogue.users()] == ["guest"]
    office.do(put(office.admin, "u", password="ppp", tags=[]))


def test_a_password_must_match_the_validator() -> None:
    office = Office(AuthOptions(password_regexp="^[a-z]+[0-9]"))
    assert office.fails(users.add_user(office.admin, "u", "abc"))[1] == "credential_validation_failed"
    office.do(users.add_user(office.admin, "u", "abc1"))


def test_single_changes() -> None:
    office = Office()
    office.do(users.add_user(office.admin, "u", "p"))
    assert office.fails(users.add_user(office.admin, "u", "q")) == ("exists", ["user_already_exists", "u"])
    assert office.logged()[-1] == "[warning] Failed to add user 'u': the user already exists"
    office.do(users.set_user_tags(office.admin, "u", ["a", "b"]))
    assert can_log_in(office, "u", "p")
    office.do(users.change_password(office.admin, "u", "q"))
    assert office.do(users.authenticate_user(office.admin, "u", "q")).tags == ("a", "b")
    assert office.fails(users.authenticate_user(office.admin, "u", "p")) == (
        "refused",
        "user 'u' - invalid credentials",
    )
    office.do(users.clear_password(office.admin, "u"))
    assert not can_log_in(office, "u", "q")
    office.do(users.delete_user(office.admin, "u"))
    assert office.catalogue.user("u") is None
    assert office.logged()[-1] == "[info] Deleted user 'u'"


def test_of_a_missing_user() -> None:
    office = Office()
    missing = ("not_found", ["no_such_user", "u"])
    assert office.fails(users.delete_user(office.admin, "u")) == missing
    assert office.fails(users.change_password(office.admin, "u", "p")) == missing
    assert office.fails(users.clear_password(office.admin, "u")) == missing
    assert office.fails(users.set_user_tags(office.admin, "u", [])) == missing
    assert office.fails(users.set_user_limits(office.admin, "u", {})) == missing
    assert office.fails(users.clear_user_limits(office.admin, "u", "all")) == missing
    assert office.logged()[:2] == [
        "[warning] Failed to delete user 'u': the user does not exist",
        "[warning] Failed to change password for user 'u': the user does not exist",
    ]


def test_several_are_deleted_up_to_the_first_that_is_missing() -> None:
    """§1.9: `POST /users/bulk-delete`."""
    office = Office()
    for name in ("a", "b", "c"):
        office.do(users.add_user(office.admin, name, "p"))
    change = users.delete_users(office.admin, ["a", "x", "b"])
    assert office.fails(change) == ("invalid", ["no_such_user", "x"])
    assert sorted(user.name for user in office.catalogue.users()) == ["b", "c", "guest"]


def test_limits_are_merged_and_cleared() -> None:
    """§1.10; `rabbitmqctl set_user_limits`."""
    office = Office()
    office.do(users.put_user(office.admin, "u", tags=[], limits={"max-connections": 5}))
    office.do(users.set_user_limits(office.admin, "u", {"max-channels": 0}))
    user = office.catalogue.user("u")
    assert user is not None
    assert user.limits == UserLimits(5, 0)
    office.do(users.put_user(office.admin, "u", tags=[]))
    assert office.catalogue.user("u").limits == UserLimits(5, 0)  # type: ignore[union-attr]
    office.do(users.clear_user_limits(office.admin, "u", "max-channels"))
    office.do(users.clear_user_limits(office.admin, "u", "nope"))
    assert office.catalogue.user("u").limits == UserLimits(5)  # type: ignore[union-attr]
    office.do(users.clear_user_limits(office.admin, "u", "all"))
    assert office.catalogue.user("u").limits == UserLimits()  # type: ignore[union-attr]
    unknown = users.set_user_limits(office.admin, "u", {"x": 7})
    assert office.fails(unknown) == ("invalid", 'Unrecognised terms [{<<"x">>,7}] in user-limits')


def test_no_name_forges_a_line() -> None:
    office = Office()
    office.do(users.put_user(office.admin, UNSAFE, password="p", tags=[UNSAFE]))
    office.do(users.set_user_limits(office.admin, UNSAFE, {"max-channels": 1}))
    office.do(users.clear_user_limits(office.admin, UNSAFE, UNSAFE))
    office.do(users.delete_user(office.admin, UNSAFE))
    office.fails(users.delete_user(office.admin, UNSAFE))
    lines = office.logged()
    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)
