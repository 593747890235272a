"""Permissions as operators change them: what RabbitMQ 3.10.8 does (management §1.9)."""

from node.admin import permissions
from node.catalogue.records import Permission
from tests.kit.office import Office


def test_set_and_clear() -> None:
    office = Office()
    office.do(permissions.clear_permissions(office.admin, "guest", "/"))
    assert office.do(permissions.set_permissions(office.admin, "guest", "/", "a", "b", "c"))
    assert not office.do(permissions.set_permissions(office.admin, "guest", "/", "a", "b", ""))
    assert office.catalogue.permission("/", "guest") == Permission("/", "guest", "a", "b", "")
    assert office.do(permissions.clear_permissions(office.admin, "guest", "/"))
    assert not office.do(permissions.clear_permissions(office.admin, "guest", "/"))
    assert office.logged()[1:4] == [
        "[info] Successfully set permissions for 'guest' in virtual host '/' to 'a', 'b', 'c'",
        "[info] Successfully set permissions for 'guest' in virtual host '/' to 'a', 'b', ''",
        "[info] Successfully cleared permissions for 'guest' in virtual host '/'",
    ]


def test_refused_permissions() -> None:
    office = Office()
    change = permissions.set_permissions
    assert office.fails(change(office.admin, "guest", "v", "a", "b", "c")) == (
        "not_found",
        ["no_such_vhost", "v"],
    )
    assert office.fails(change(office.admin, "u", "/", "a", "b", "c")) == ("not_found", ["no_such_user", "u"])
    kind, reason = office.fails(change(office.admin, "guest", "/", "a", "(", "c"))
    assert kind == "invalid"
    assert isinstance(reason, list)
    assert reason[:2] == ["invalid_regexp", "("]
    assert office.fails(permissions.clear_permissions(office.admin, "u", "/"))[0] == "not_found"
    assert office.logged() == [
        "[warning] Failed to set permissions for 'guest': virtual host 'v' does not exist",
        "[warning] Failed to set permissions for 'u': the user does not exist",
        "[warning] Failed to set permissions for 'guest': regular expression '(' is invalid",
        "[warning] Failed to clear permissions for 'u': the user does not exist",
    ]


def test_topic_permissions() -> None:
    office = Office()
    change, clear = permissions.set_topic_permissions, permissions.clear_topic_permissions
    assert office.do(change(office.admin, "guest", "/", "e", "b", "c"))
    assert not office.do(change(office.admin, "guest", "/", "e", "b", ""))
    office.do(change(office.admin, "guest", "/", "f", "", ""))
    assert office.fails(change(office.admin, "guest", "/", "e", "(", "c"))[0] == "invalid"
    assert office.fails(change(office.admin, "u", "/", "e", "(", "c"))[0] == "not_found"
    assert office.do(clear(office.admin, "guest", "/", "e"))
    assert not office.do(clear(office.admin, "guest", "/", "e"))
    assert [row.exchange for row in office.catalogue.topic_permissions()] == ["f"]
    assert office.do(clear(office.admin, "guest", "/"))
    assert not list(office.catalogue.topic_permissions())
    lines = office.logged()
    assert (
        lines[0]
        == "[info] Successfully set topic permissions on exchange 'e' for 'guest' in virtual host '/' to 'b', 'c'"
    )
    assert lines[-1] == "[info] Successfully cleared topic permissions for 'guest' in virtual host '/'"
