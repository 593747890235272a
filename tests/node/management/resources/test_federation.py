"""Links of all nodes are listed, filtered and restarted over HTTP."""

from collections.abc import Iterable, Mapping
from typing import Any

from node.catalogue.commands import EnablePlugin, PutVhost
from node.federation.link import LOCAL
from node.management.resources.federation import LOCAL_CHANNEL
from node.statistics.query import Query
from node.statistics.rows import Kind, Row
from tests.kit.fake_site import NODE, Caller, FakeSite

ROWS: list[dict[str, Any]] = [
    {"node": NODE, "vhost": "/", "type": "exchange", "exchange": "x", "id": "1", "status": "running"},
    {
        "node": NODE,
        "vhost": "/",
        "type": "exchange",
        "exchange": "y",
        "id": "2",
        "status": "error",
        "error": "e",
    },
    {"node": NODE, "vhost": "v", "type": "queue", "queue": "q", "id": "3", "status": "starting"},
]


class FederatedSite(FakeSite):
    """A node whose plug-in has three links.   restarted: the ids of links that were restarted."""

    def __init__(self, *plugins: str) -> None:
        super().__init__()
        self.restarted: list[str] = []
        self.broker.log.submit(PutVhost("v"))
        for plugin in plugins:
            self.broker.log.submit(EnablePlugin(plugin, ()))

    async def ask(self, node: str, question: str, arguments: Mapping[str, Any]) -> Any:
        assert (question, arguments["plugin"]) == ("plugin", "rabbitmq_federation")
        if arguments["question"] == "links":
            return ROWS
        self.restarted.append(arguments["arguments"]["id"])
        return any(row["id"] == self.restarted[-1] for row in ROWS)

    async def ask_all(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {NODE: await self.ask(NODE, question, arguments), "silent@test": None}


BOTH = ("rabbitmq_federation", "rabbitmq_federation_management")


def ids(caller: Caller, path: str) -> list[str]:
    """Return the ids of the links that a path lists."""
    reply = caller.ask("GET", f"/api/federation-links{path}")
    assert reply.status == 200
    return [row["id"] for row in reply.value]


def test_links_are_listed_by_vhost_and_state() -> None:
    """RabbitMQ's four lists have all links, those of a vhost, and those that are down."""
    caller = Caller(FederatedSite(*BOTH))
    assert ids(caller, "") == ["1", "2", "3"]
    assert ids(caller, "/%2F") == ["1", "2"]
    assert ids(caller, "/v") == ["3"]
    assert ids(caller, "/state/down") == ["2"]
    assert ids(caller, "/%2F/state/down") == ["2"]
    assert ids(caller, "/v/state/down") == []
    assert caller.ask("GET", "/api/federation-links/nope").status == 404


def test_lists_are_empty_without_the_plug_in() -> None:
    """Monitors ask for them, so they are no error."""
    assert ids(Caller(FederatedSite()), "") == []


def test_link_is_restarted_on_its_node() -> None:
    """A restart of a link is 204; one of a link, node or vhost that is not there is 404."""
    site = FederatedSite(*BOTH)
    caller = Caller(site)
    assert caller.ask("DELETE", f"/api/federation-links/vhost/%2F/1/{NODE}/restart").status == 204
    assert site.restarted == ["1"]
    assert caller.ask("DELETE", f"/api/federation-links/vhost/%2F/nope/{NODE}/restart").status == 404
    assert caller.ask("DELETE", "/api/federation-links/vhost/%2F/1/other@test/restart").status == 404
    assert caller.ask("DELETE", f"/api/federation-links/vhost/nope/1/{NODE}/restart").status == 404


def test_restart_needs_the_management_plug_in() -> None:
    """Without `rabbitmq_federation_management` there is no such path."""
    caller = Caller(FederatedSite("rabbitmq_federation"))
    assert caller.ask("DELETE", f"/api/federation-links/vhost/%2F/1/{NODE}/restart").status == 404


def test_page_is_in_the_menu_while_the_plug_in_is_enabled() -> None:
    """`/extensions` names the page's script among the UI's own files."""
    for plugins, expected in (((), []), (BOTH, ["js/pages/federation.js"])):
        reply = Caller(FederatedSite(*plugins)).ask("GET", "/api/extensions")
        found = [row["javascript"] for row in reply.value if row.get("plugin") in BOTH]
        assert found == expected


def test_a_link_that_runs_has_the_channel_over_which_it_publishes_here() -> None:
    """`local_channel` is the row of that channel on the node of the link; without statistics there is none."""
    channels = [
        {"id": f"{node}7", "name": "<7> (1)", "node": node, "connection_details": {"name": "<7>"}}
        for node in ("other@test", NODE)
    ]
    asked: list[Query] = []

    class Site(FederatedSite):
        async def ask_all(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
            running = {**ROWS[0], "local_connection": "<7>"}
            gone = {**ROWS[2], "status": "running", "local_connection": "<8>"}
            return {NODE: [running, ROWS[1], gone]}

        async def rows(self, kind: Kind, query: Query, nodes: Iterable[str] | None = None) -> list[Row]:
            assert kind == "channels"
            assert set(nodes or ()) == {NODE}
            asked.append(query)
            return channels

    caller = Caller(Site(*BOTH))
    running, down, gone = caller.ask("GET", "/api/federation-links").value
    assert running["local_channel"] == {key: channels[1][key] for key in channels[1] if key != "id"}
    assert "local_channel" not in down
    assert "local_channel" not in gone
    assert [query.ids for query in asked] == [("<7> (1)", "<8> (1)")]
    assert LOCAL_CHANNEL == LOCAL
    rows = caller.ask("GET", "/api/federation-links?disable_stats=true").value
    assert not [row for row in rows if "local_channel" in row]
    caller.ask("GET", "/api/federation-links/state/down")
    assert len(asked) == 1  # links that are down publish over no channel
