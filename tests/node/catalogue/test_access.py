"""The catalogue decides who may log in, open a vhost, touch a resource (amqp-behaviour §1.3, §1.5, §4.1, §6.6-§6.8)."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue import access
from node.catalogue.access import (
    LoginRefused,
    Operation,
    check_login,
    check_open,
    check_resource,
    check_topic,
)
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    ClearPermission,
    DeleteUser,
    PutUser,
    PutVhost,
    Refused,
    SetParameter,
    SetPermission,
    SetTopicPermission,
    SetUserLimits,
)
from node.catalogue.passwords import SHA256, hash_password
from node.catalogue.records import ResourceKind, User, UserLimits


@pytest.fixture
def catalogue() -> Catalogue:
    result = Catalogue()
    result.apply(PutVhost("v"))
    result.apply(PutUser("u", hash_password("secret", b"salt"), SHA256))
    return result


def permit(catalogue: Catalogue, configure: str = "", write: str = "", read: str = "") -> None:
    assert not isinstance(catalogue.apply(SetPermission("v", "u", configure, write, read)), Refused)


def refusal(check: object, *args: object, **options: object) -> tuple[ReplyCode, str] | None:
    assert callable(check)
    try:
        check(*args, **options)
    except ProtocolError as error:
        return error.code, error.explanation
    return None


# --- login -------------------------------------------------------------------------------------------------


def test_right_password(catalogue: Catalogue) -> None:
    assert check_login(catalogue, "u", "secret", is_loopback=False) is catalogue.user("u")
    assert check_login(catalogue, "u", b"secret", is_loopback=False) is catalogue.user("u")


@pytest.mark.parametrize(("name", "password"), [("u", "wrong"), ("nobody", "secret"), ("u", b"\xff")])
def test_wrong_password_or_unknown_user(catalogue: Catalogue, name: str, password: str | bytes) -> None:
    """§1.3 row wrong password / unknown user: alike."""
    refused = check_login(catalogue, name, password, is_loopback=True)
    assert refused == LoginRefused(f"user '{name}' - invalid credentials")


def test_empty_password_is_refused_even_if_the_hash_matches(catalogue: Catalogue) -> None:
    """§1.3 row empty password."""
    catalogue.apply(PutUser("u", hash_password("", b"salt"), SHA256))
    assert isinstance(check_login(catalogue, "u", "", is_loopback=True), LoginRefused)


def test_user_without_password_hash_cannot_log_in(catalogue: Catalogue) -> None:
    catalogue.apply(PutUser("u", "", SHA256))
    assert isinstance(check_login(catalogue, "u", "secret", is_loopback=True), LoginRefused)


def test_loopback_users(catalogue: Catalogue) -> None:
    """§1.3 row user in loopback_users from a non-loopback address."""
    for is_loopback, loopback_users, expected in (
        (False, {"u"}, False),
        (True, {"u"}, True),
        (False, {"guest"}, True),
    ):
        result = check_login(catalogue, "u", "secret", is_loopback=is_loopback, loopback_users=loopback_users)
        assert isinstance(result, User) is expected


# --- connection.open ---------------------------------------------------------------------------------------


def test_open_checks_in_order(catalogue: Catalogue) -> None:
    """§1.5 checks 1 to 4: each step removes the one complaint that came first."""

    def attempt(vhost: str = "v") -> tuple[ReplyCode, str] | None:
        return refusal(check_open, catalogue, "u", vhost, vhost_connection_count=3, user_connection_count=2)

    catalogue.apply(SetParameter("v", "vhost-limits", "limits", {"max-connections": 3}))
    catalogue.apply(SetUserLimits("u", UserLimits(max_connections=2)))
    not_allowed = ReplyCode.NOT_ALLOWED
    assert attempt("w") == (not_allowed, "vhost w not found")
    assert attempt() == (
        not_allowed,
        "access to vhost 'v' refused for user 'u': connection limit (3) is reached",
    )
    catalogue.apply(SetParameter("v", "vhost-limits", "limits", {"max-connections": 4}))
    assert attempt() == (
        not_allowed,
        "connection refused for user 'u': user connection limit (2) is reached",
    )
    catalogue.apply(SetUserLimits("u", UserLimits()))
    assert attempt() == (not_allowed, "access to vhost 'v' refused for user 'u'")
    permit(catalogue)
    assert attempt() is None


# --- resources ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "exchange"])
@pytest.mark.parametrize("operation", ["configure", "write", "read"])
def test_each_operation_has_its_own_expression(
    catalogue: Catalogue, kind: ResourceKind, operation: Operation
) -> None:
    """§6.7: text of the refusal; only the operation's own expression counts."""
    permit(catalogue, **{operation: "^good$"})
    others: list[Operation] = [other for other in ("configure", "write", "read") if other != operation]
    assert refusal(check_resource, catalogue, "u", "v", kind, "good", operation) is None
    for refused_operation, name in [(operation, "bad"), *((other, "good") for other in others)]:
        assert refusal(check_resource, catalogue, "u", "v", kind, name, refused_operation) == (
            ReplyCode.ACCESS_REFUSED,
            f"access to {kind} '{name}' in vhost 'v' refused for user 'u'",
        )


def test_expressions_are_unanchored(catalogue: Catalogue) -> None:
    """§6.7: `bx` matches `zzbxzz`."""
    permit(catalogue, read="bx")
    check_resource(catalogue, "u", "v", "queue", "zzbxzz", "read")


def test_empty_expression_behaves_as_anchored_nothing(catalogue: Catalogue) -> None:
    """§6.7: the empty string behaves as `^$`."""
    permit(catalogue)
    check_resource(catalogue, "u", "v", "queue", "", "read")
    assert refusal(check_resource, catalogue, "u", "v", "queue", "q", "read") is not None


def test_default_exchange_goes_by_another_name(catalogue: Catalogue) -> None:
    """§6.7: the default exchange appears as `amq.default`."""
    permit(catalogue, write="^x$")
    assert refusal(check_resource, catalogue, "u", "v", "exchange", "", "write") == (
        ReplyCode.ACCESS_REFUSED,
        "access to exchange 'amq.default' in vhost 'v' refused for user 'u'",
    )
    permit(catalogue, write=r"^amq\.default$")
    check_resource(catalogue, "u", "v", "exchange", "", "write")


def test_without_a_row_everything_is_refused_and_revocation_is_immediate(catalogue: Catalogue) -> None:
    args = (catalogue, "u", "v", "queue", "q", "read")
    assert refusal(check_resource, *args) is not None
    permit(catalogue, read=".*")
    assert refusal(check_resource, *args) is None
    catalogue.apply(ClearPermission("v", "u"))
    assert refusal(check_resource, *args) is not None
    permit(catalogue, read=".*")
    catalogue.apply(DeleteUser("u"))
    assert refusal(check_resource, *args) is not None


# --- topics ------------------------------------------------------------------------------------------------


def test_topics_are_free_without_a_row(catalogue: Catalogue) -> None:
    """§6.8: no row = allowed."""
    assert refusal(check_topic, catalogue, "u", "v", "x", "a.b", "write") is None


def test_topic_row_restricts_its_exchange_only(catalogue: Catalogue) -> None:
    """§6.8: write on publish keys, read on binding keys, and the text with `in exchange`."""
    catalogue.apply(SetTopicPermission("v", "u", "x", "^w", "^r"))
    assert refusal(check_topic, catalogue, "u", "v", "x", "w.z", "write") is None
    assert refusal(check_topic, catalogue, "u", "v", "x", "r.z", "read") is None
    assert refusal(check_topic, catalogue, "u", "v", "y", "other", "read") is None
    for operation, key in (("write", "r.z"), ("read", "w.z")):
        assert refusal(check_topic, catalogue, "u", "v", "x", key, operation) == (
            ReplyCode.ACCESS_REFUSED,
            f"access to topic '{key}' in exchange 'x' in vhost 'v' refused for user 'u'",
        )


def test_topic_row_with_empty_expression_allows_the_empty_key_only(catalogue: Catalogue) -> None:
    catalogue.apply(SetTopicPermission("v", "u", "x", "", ""))
    assert refusal(check_topic, catalogue, "u", "v", "x", "", "write") is None
    assert refusal(check_topic, catalogue, "u", "v", "x", "a", "write") is not None


def test_topic_variables_stand_for_literal_names(catalogue: Catalogue) -> None:
    """§6.8: `{username}` and `{vhost}`; quoted, unlike RabbitMQ, so that a name is no expression."""
    catalogue.apply(PutUser("a.*", "", SHA256))
    catalogue.apply(SetTopicPermission("v", "a.*", "x", "^{vhost}-{username}$", ""))
    assert refusal(check_topic, catalogue, "a.*", "v", "x", "v-a.*", "write") is None
    assert refusal(check_topic, catalogue, "a.*", "v", "x", "v-abc", "write") is not None


# --- user-id -----------------------------------------------------------------------------------------------


def test_user_id_must_be_the_users_own() -> None:
    """§4.1 check 8: the empty string counts as a claim."""
    user = User("guest", "", SHA256)
    access.check_user_id(user, None)
    access.check_user_id(user, "guest")
    for claimed in ("bob", ""):
        assert refusal(access.check_user_id, user, claimed) == (
            ReplyCode.PRECONDITION_FAILED,
            f"user_id property set to '{claimed}' but authenticated user was 'guest'",
        )


def test_impersonator_may_claim_any_user_id() -> None:
    """§4.1 check 8, §6.6: tag impersonator."""
    access.check_user_id(User("guest", "", SHA256, ("impersonator",)), "bob")
