"""Connections, channels and consumers, listed and found (management §1.6-§1.8, §2.1)."""

from typing import Any

import pytest

from node.catalogue.commands import PutUser, PutVhost, SetPermission
from node.catalogue.passwords import SHA256
from node.statistics.rows import Kind
from tests.kit.fake_site import Caller
from tests.kit.live_site import LiveSite, live

MANAGER = {"authorization": "Basic bTpndWVzdA=="}
MONITOR = {"authorization": "Basic bzpndWVzdA=="}
KINDS: list[Kind] = ["connections", "channels"]


def row(number: int, user: str = "guest") -> dict[str, Any]:
    return {
        "id": f"c{number}\0n.{number}",
        "name": f"c{number}",
        "vhost": "/",
        "user": user,
        "node": "node@test",
        "recv_oct": number * 7 % 5,
        "connection_details": {"name": f"c{number % 2}"},
    }


@pytest.fixture
def site_caller() -> tuple[LiveSite, Caller]:
    """Six connections and channels, of which one is the manager's."""
    site, caller = live()
    guest = site.broker.catalogue.user("guest")
    assert guest is not None
    site.world.submit(PutUser("m", guest.password_hash, SHA256, ("management",)))
    site.world.submit(PutUser("o", guest.password_hash, SHA256, ("monitoring",)))
    site.world.submit(SetPermission("/", "m", ".*", ".*", ".*"))
    for kind in KINDS:
        site.canned[kind] = [row(number, "m" if number == 3 else "guest") for number in range(6)]
    return site, caller


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_asks_twice(site_caller: tuple[LiveSite, Caller], kind: Kind) -> None:
    """First for names and what is sorted by, then for all of what is on the page; ids are not shown."""
    site, caller = site_caller
    page = caller.ask("GET", f"/api/{kind}?page=1&page_size=2&sort=recv_oct&sort_reverse=true").value
    assert [each["name"] for each in page["items"]] == ["c2", "c4"]
    assert "id" not in page["items"][0]
    assert (page["filtered_count"], page["total_count"], page["page_count"]) == (6, 6, 3)
    (_, first, _), (_, second, _) = site.queries
    assert (first.ids, first.fields) == (None, {"name", "vhost", "recv_oct"})
    assert (second.ids, second.fields) == (("c2\0n.2", "c4\0n.4"), None)


def test_a_whole_list_asks_once(site_caller: tuple[LiveSite, Caller]) -> None:
    site, caller = site_caller
    rows = caller.ask("GET", "/api/connections?columns=name,node&sort=recv_oct").value
    assert rows[0] == {"name": "c0", "node": "node@test"}
    ((_, query, _),) = site.queries
    assert query.fields == {"name", "node", "vhost", "recv_oct"}


def test_who_sees_what(site_caller: tuple[LiveSite, Caller]) -> None:
    """§2.1: connections, channels, consumers: own only; monitoring: all, in any vhost."""
    site, caller = site_caller
    caller.ask("GET", "/api/connections", headers=MANAGER)
    assert site.queries[-1][1].user == "m"
    caller.ask("GET", "/api/connections", headers=MONITOR)
    assert site.queries[-1][1].user is None
    site.world.submit(PutVhost("v"))
    assert caller.ask("GET", "/api/vhosts/v/connections", headers=MONITOR).status == 200
    assert caller.ask("GET", "/api/vhosts/v/connections", headers=MANAGER).status == 401
    assert caller.ask("GET", "/api/vhosts/nope/connections", headers=MONITOR).status == 404
    assert caller.ask("GET", "/api/connections", headers={**MONITOR, "x-vhost": "v"}).status == 200
    assert site.queries[-1][1].vhost == "v"


def test_one_by_its_name(site_caller: tuple[LiveSite, Caller]) -> None:
    _, caller = site_caller
    assert caller.ask("GET", "/api/connections/c1").value["recv_oct"] == 2
    assert caller.ask("GET", "/api/connections/c1?columns=name").value == {"name": "c1"}
    assert caller.ask("GET", "/api/connections/nope").status == 404
    assert caller.ask("GET", "/api/connections/c3", headers=MANAGER).status == 200
    assert caller.ask("GET", "/api/connections/c1", headers=MANAGER).status == 401
    assert caller.ask("GET", "/api/connections/c1", headers=MONITOR).status == 200
    channel = caller.ask("GET", "/api/channels/c1").value
    assert (channel["consumer_details"], channel["publishes"], channel["deliveries"]) == ([], [], [])


def test_channels_of_a_connection(site_caller: tuple[LiveSite, Caller]) -> None:
    _, caller = site_caller
    rows = caller.ask("GET", "/api/connections/c1/channels").value
    assert [each["name"] for each in rows] == ["c1", "c3", "c5"]
    assert caller.ask("GET", "/api/connections/nope/channels").status == 404


def closed(site: LiveSite) -> list[dict[str, Any]]:
    return [arguments for _, question, arguments in site.questions if question == "close_connections"]


def test_who_closes_what(site_caller: tuple[LiveSite, Caller]) -> None:
    """DELETE: own or administrator; header `X-Reason`."""
    site, caller = site_caller
    for headers in (MANAGER, MONITOR):
        assert caller.ask("DELETE", "/api/connections/c1", headers=headers).status == 401
    assert closed(site) == []
    assert caller.ask("DELETE", "/api/connections/c3", headers=MANAGER).status == 204
    assert caller.ask("DELETE", "/api/connections/c1", headers={"x-reason": "r" * 500}).status == 204
    none = {"user": None, "vhost": None}
    assert closed(site) == [
        {"names": ["c3"], "reason": "Closed via management plugin", **none},
        {"names": ["c1"], "reason": "r" * 200, **none},
    ]


def test_connections_of_a_user(site_caller: tuple[LiveSite, Caller]) -> None:
    site, caller = site_caller
    caller.ask("GET", "/api/connections/username/x")
    ((_, query, _),) = site.queries
    assert (query.user, query.fields) == ("x", {"name", "vhost", "user", "node"})
    assert caller.ask("GET", "/api/connections/username/x", headers=MANAGER).status == 401
    assert caller.ask("GET", "/api/connections/username/x", headers=MONITOR).status == 200
    assert caller.ask("DELETE", "/api/connections/username/x", headers=MONITOR).status == 401
    assert caller.ask("DELETE", "/api/connections/username/m", headers=MANAGER).status == 204
    assert closed(site)[-1]["user"] == "m"
    assert caller.ask("DELETE", "/api/connections/username/x").status == 204


def test_what_is_gone_between_the_questions(site_caller: tuple[LiveSite, Caller]) -> None:
    site, caller = site_caller
    rows = site.rows

    async def vanishing(kind: Kind, query: Any, nodes: Any = None) -> Any:
        found = await rows(kind, query, nodes)
        return found if query.ids is None else [each for each in found if each["name"] != "c0"]

    site.rows = vanishing  # type: ignore[method-assign]
    page = caller.ask("GET", "/api/connections?page=1").value
    assert (page["item_count"], page["filtered_count"]) == (5, 6)
    assert caller.ask("GET", "/api/connections/c0").status == 404
