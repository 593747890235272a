"""Vhosts as operators change them: what RabbitMQ 3.10.8 does (management §1.9)."""

from node.admin import vhosts
from node.catalogue.records import Permission
from tests.kit.office import Office


def test_put_creates_and_describes() -> None:
    office = Office()
    change = vhosts.put_vhost(
        office.admin, "v", description="d", tags=["a", "b"], default_queue_type="quorum", owner="guest"
    )
    assert office.do(change)
    found = office.catalogue.vhost("v")
    assert found is not None
    assert (found.description, found.tags, found.default_queue_type) == ("d", ("a", "b"), "quorum")
    assert office.catalogue.permission("v", "guest") == Permission("v", "guest", ".*", ".*", ".*")
    assert office.logged() == [
        "[info] Adding vhost 'v' (description: 'd', tags: [a,b])",
        "[info] Successfully set permissions for 'guest' in virtual host 'v' to '.*', '.*', '.*'",
    ]


def test_a_second_put_resets_the_description_and_keeps_the_queue_type() -> None:
    """§1.9: `PUT {}` empties description and tags; a default queue type never changes."""
    office = Office()
    first = vhosts.put_vhost(
        office.admin, "v", description="d", tags=["a"], default_queue_type="quorum", tracing=True
    )
    office.do(first)
    assert not office.do(vhosts.put_vhost(office.admin, "v", default_queue_type="nope", owner="guest"))
    found = office.catalogue.vhost("v")
    assert found is not None
    assert (found.description, found.tags, found.default_queue_type) == ("", (), "quorum")
    assert vhosts.is_traced(found)
    assert office.catalogue.permission("v", "guest") is None


def test_tracing() -> None:
    office = Office()
    office.do(vhosts.put_vhost(office.admin, "v", tracing=True))
    office.do(vhosts.put_vhost(office.admin, "v", description="d", tracing=True))
    office.do(vhosts.set_tracing(office.admin, "v", is_on=False))
    found = office.catalogue.vhost("v")
    assert found is not None
    assert not vhosts.is_traced(found)
    assert found.description == "d"
    assert office.logged()[1:] == [
        "[info] Enabling tracing for vhost 'v'",
        "[info] Tracing is already enabled for vhost 'v'",
        "[info] Disabling tracing for vhost 'v'",
    ]
    assert office.fails(vhosts.set_tracing(office.admin, "w", is_on=True)) == (
        "not_found",
        ["no_such_vhost", "w"],
    )


def test_refused_vhosts() -> None:
    office = Office()
    assert office.fails(vhosts.put_vhost(office.admin, "v", default_queue_type="nope")) == (
        "invalid",
        ["invalid_queue_type", "nope"],
    )
    assert office.fails(vhosts.put_vhost(office.admin, ""))[0] == "invalid"
    assert office.fails(vhosts.put_vhost(office.admin, "é" * 128))[0] == "invalid"
    assert office.fails(vhosts.delete_vhost(office.admin, "v")) == ("not_found", ["no_such_vhost", "v"])
    assert [vhost.name for vhost in office.catalogue.vhosts()] == ["/"]


def test_add_leaves_what_is_there() -> None:
    """`rabbitmqctl add_vhost` of an existing one."""
    office = Office()
    assert office.do(vhosts.add_vhost(office.admin, "v", description="d"))
    assert not office.do(vhosts.add_vhost(office.admin, "v", description="e"))
    assert office.catalogue.vhost("v").description == "d"  # type: ignore[union-attr]


def test_tags_and_deletion() -> None:
    office = Office()
    office.do(vhosts.put_vhost(office.admin, "v", description="d"))
    office.do(vhosts.set_vhost_tags(office.admin, "v", ["x", "y"]))
    assert office.catalogue.vhost("v").tags == ("x", "y")  # type: ignore[union-attr]
    assert office.catalogue.vhost("v").description == "d"  # type: ignore[union-attr]
    office.do(vhosts.delete_vhost(office.admin, "v"))
    assert office.catalogue.vhost("v") is None
    assert office.logged()[1:] == [
        "[info] Successfully set tags for virtual host 'v' to [x,y]",
        "[info] Deleting vhost 'v'",
    ]
