"""The pages of shovels and federation: forms make them, tables say how they fare, a picture shows the upstreams.

One node is both ends of all links.
"""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.kit.http_api import HttpApi, quote
from tests.kit.managed_fluffle import ManagedFluffle
from tests.kit.patience import wait_until
from tests.kit.ports import free_port
from tests.ui.browser import Watch
from tests.ui.frame import confirm, expect_toast, go_to, log_in, overflow, section
from tests.ui.test_axe import violations
from tests.ui.test_pages import open_all_sections, troubles

pytestmark = pytest.mark.slow

PLUGINS = (
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
    "rabbitmq_federation",
    "rabbitmq_federation_management",
)
SHOVELS = "#/plugins/rabbitmq_shovel_management"
FEDERATION = "#/plugins/rabbitmq_federation_management"
SECRET = "gu%65st"
"""The password of guest, percent-encoded, so that it can be told from the user's name."""

TRICKY = "bad <img src=x onerror=alert(1)>"
"""A name that has to be shown as it is."""


@pytest.fixture(scope="module")
def server() -> Iterator[ManagedFluffle]:
    """A node with both plug-ins and their pages."""
    started = ManagedFluffle({"cluster_name": "home"}, PLUGINS)
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def api(server: ManagedFluffle) -> Iterator[HttpApi]:
    """The node, from which the parameters, policies and queues of a test are removed after it."""
    api = HttpApi(server)
    yield api
    for component in ("shovel", "federation-upstream-set", "federation-upstream"):
        for row in api.get(f"/parameters/{component}").json:
            api.delete(f"/parameters/{component}/%2F/{quote(row['name'])}")
    for row in api.get("/policies").json:
        api.delete(f"/policies/%2F/{quote(row['name'])}")
    wait_until(lambda: api.get("/federation-links").json == [], "the links have ended")
    for kind in ("queues", "exchanges"):
        for row in api.get(f"/{kind}/%2F").json:
            if row["name"] and not row["name"].startswith("amq."):
                api.delete(f"/{kind}/%2F/{quote(row['name'])}")


@pytest.fixture
def page(watches: Callable[..., Watch], server: ManagedFluffle) -> Page:
    """A page of the node, logged in as guest."""
    page = watches().open(server.management_url)
    log_in(page)
    return page


def uri_of(server: ManagedFluffle) -> str:
    """Return the URI of the node, with a password."""
    return f"amqp://guest:{SECRET}@{server.host}:{server.port}"


def shown_uri_of(server: ManagedFluffle) -> str:
    """Return what the pages show of it."""
    return f"amqp://guest:******@{server.host}:{server.port}"


def row_of(page: Page, name: str, text: str) -> Locator:
    """Return the row of a section's table that has a text."""
    return section(page, name).locator("tbody tr", has_text=text)


def put(api: HttpApi, path: str, body: object) -> None:
    """Make something over HTTP."""
    answer = api.put(path, body)
    assert answer.status in (201, 204), (path, answer.status, answer.text)


def put_shovel(api: HttpApi, name: str, **changes: object) -> None:
    """Set a shovel from queue `from` to queue `to`."""
    value = {"src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://", "dest-queue": "to"}
    value |= {key.replace("_", "-"): each for key, each in changes.items()}  # type: ignore[misc]
    put(api, f"/parameters/shovel/%2F/{quote(name)}", {"value": value})


def federate(api: HttpApi, server: ManagedFluffle) -> None:
    """Federate exchange `x` with exchange `there` of the same node, and with one that is nowhere."""
    put(api, "/exchanges/%2F/x", {"type": "topic", "durable": True})
    put(api, "/queues/%2F/q", {"durable": True})
    assert api.post("/bindings/%2F/e/x/q/q", {"routing_key": "#"}).status == 201
    for name, uri in (("near", uri_of(server)), ("far", f"amqp://guest:{SECRET}@127.0.0.1:{free_port()}")):
        value = {"uri": uri, "exchange": "there"}
        put(api, f"/parameters/federation-upstream/%2F/{name}", {"value": value})
    policy = {"pattern": "^x$", "apply-to": "exchanges", "definition": {"federation-upstream-set": "all"}}
    put(api, "/policies/%2F/fed", policy)


# --- shovels ---


def test_a_form_makes_a_shovel_that_runs(page: Page, api: HttpApi, server: ManagedFluffle) -> None:
    """The table shows it with both ends and without its password, and counts what it moves."""
    go_to(page, SHOVELS)
    expect(section(page, "shovels.states").locator(".empty")).to_be_visible()
    form = section(page, "shovels.add").locator("form")
    form.locator("[name=name]").fill("orders")
    form.locator("[name=src-uri]").fill(uri_of(server))
    form.locator("[name=src-name]").fill("from")
    form.locator("[name=dest-name]").fill("to")
    form.locator("[name=ack-mode]").select_option("on-publish")
    form.locator("[name=dest-add-forward-headers]").check()
    form.get_by_role("button", name="Set shovel").click()
    expect_toast(page, "Set")
    expect(form.locator("[name=name]")).to_have_value("")
    assert api.get("/parameters/shovel/%2F/orders").json["value"] == {
        "src-uri": uri_of(server),
        "src-queue": "from",
        "dest-uri": "amqp://",
        "dest-queue": "to",
        "ack-mode": "on-publish",
        "dest-add-forward-headers": True,
    }
    row = row_of(page, "shovels.states", "orders")
    expect(row.locator("td[data-label=State]")).to_contain_text("running")
    expect(row.locator("td[data-label=Source]")).to_contain_text("queue from")
    expect(row.locator("td[data-label=Destination]")).to_contain_text("queue to")
    setting = row_of(page, "shovels.parameters", "orders")
    expect(setting.locator("td[data-label=Source]")).to_contain_text(shown_uri_of(server))
    assert SECRET not in page.locator("main").inner_text()
    message = {"properties": {}, "routing_key": "from", "payload": "m", "payload_encoding": "string"}
    assert api.post("/exchanges/%2F/amq.default/publish", message).json == {"routed": True}
    expect(row.locator("td[data-label=Messages]")).to_have_text("1")
    assert troubles(page) == []


def test_a_shovel_that_cannot_connect_says_why_and_is_deleted(page: Page, api: HttpApi) -> None:
    put_shovel(api, TRICKY, src_uri=f"amqp://127.0.0.1:{free_port()}")
    go_to(page, SHOVELS)
    row = row_of(page, "shovels.states", TRICKY)
    expect(row.locator("td[data-label=State]")).to_contain_text("terminated")
    expect(row.locator("td[data-label=State]")).to_contain_text("(ECONNREFUSED)")
    row.get_by_role("button", name="Restart").click()
    expect_toast(page, "Restarted")
    row_of(page, "shovels.parameters", TRICKY).get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    expect_toast(page, "Deleted")
    expect(row).to_have_count(0)
    assert api.get("/parameters/shovel").json == []


def test_a_shovel_that_is_refused_stays_in_the_form(page: Page, api: HttpApi) -> None:
    go_to(page, SHOVELS)
    form = section(page, "shovels.add").locator("form")
    form.locator("[name=name]").fill("wrong")
    form.locator("[name=src-uri]").fill("http://host")
    form.locator("[name=src-name]").fill("from")
    form.locator("[name=dest-name]").fill("to")
    form.get_by_role("button", name="Set shovel").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("not a valid URI")
    dialog.get_by_role("button", name="Close").click()
    expect(form.locator("[name=name]")).to_have_value("wrong")
    assert api.get("/parameters/shovel").json == []


# --- federation ---


def test_a_form_makes_an_upstream_and_a_set(page: Page, api: HttpApi, server: ManagedFluffle) -> None:
    go_to(page, FEDERATION)
    form = section(page, "federation.addUpstream").locator("form")
    form.locator("[name=name]").fill("west")
    form.locator("[name=uri]").fill(f"{uri_of(server)} amqp://other")
    form.locator("[name=max-hops]").fill("2")
    form.locator("[name=trust-user-id]").select_option("true")
    form.get_by_role("button", name="Set upstream").click()
    expect_toast(page, "Set")
    assert api.get("/parameters/federation-upstream/%2F/west").json["value"] == {
        "uri": [uri_of(server), "amqp://other"],
        "max-hops": 2,
        "trust-user-id": True,
    }
    expect(row_of(page, "federation.upstreams", "west")).to_contain_text(shown_uri_of(server))
    assert SECRET not in page.locator("main").inner_text()
    sets = section(page, "federation.sets")
    sets.locator("form [name=name]").fill("both")
    sets.locator("form [name=members]").fill("west east")
    sets.get_by_role("button", name="Set set").click()
    expect(sets.locator("tbody tr", has_text="both")).to_contain_text("west, east")
    row_of(page, "federation.upstreams", "west").get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    expect(row_of(page, "federation.upstreams", "west")).to_have_count(0)


def test_links_have_their_states_and_the_picture_its_neighbours(
    page: Page, api: HttpApi, server: ManagedFluffle, keep_picture: Callable[..., None]
) -> None:
    """The node is its own upstream and downstream; another upstream cannot be reached."""
    federate(api, server)
    go_to(page, FEDERATION)
    near, far = (row_of(page, "federation.links", name) for name in ("near", "far"))
    expect(near.locator("td[data-label=State]")).to_contain_text("running")
    expect(far.locator("td[data-label=State]")).to_contain_text("econnrefused")
    drawing = section(page, "federation.map").locator("svg[role=img]")
    expect(drawing).to_have_attribute(
        "aria-label",
        re.compile(
            r"Upstreams of home: far \(0 of 1 link runs\), near \(1 of 1 link runs\)\. "
            r"Downstreams: home \(takes from 1 exchange\)\."
        ),
    )
    expect(drawing.locator(".ring-node")).to_have_count(4)
    expect(drawing.locator(".ring-node.is-down")).to_have_count(1)
    expect(drawing.locator("path.ring-hop")).to_have_count(3)
    message = {"properties": {}, "routing_key": "k", "payload": "m", "payload_encoding": "string"}
    assert api.post("/exchanges/%2F/there/publish", message).json == {"routed": True}
    expect(near.locator("td[data-label=Messages]")).to_have_text("1")
    near.get_by_role("button", name="Restart").click()
    expect_toast(page, "Restarted")
    expect(near.locator("td[data-label=State]")).to_contain_text("running")
    assert troubles(page) == []
    keep_picture(page, "federation")


# --- both ---


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(
    watches: Callable[..., Watch], api: HttpApi, server: ManagedFluffle, scheme: str
) -> None:
    """Each page with all of its sections open, and with rows in all states."""
    federate(api, server)
    put_shovel(api, "good")
    put_shovel(api, "bad", src_uri=f"amqp://127.0.0.1:{free_port()}")
    page = watches(color_scheme=scheme).open(server.management_url)
    log_in(page)
    for route, state in ((SHOVELS, "terminated"), (FEDERATION, "econnrefused")):
        go_to(page, route)
        open_all_sections(page)
        expect(page.locator("td[data-label=State]", has_text=state)).to_be_visible()
        expect(page.locator("td[data-label=State]", has_text="running")).to_be_visible()
        assert violations(page) == []


def test_on_a_phone(watches: Callable[..., Watch], api: HttpApi, server: ManagedFluffle) -> None:
    """Nothing is wider than the screen."""
    federate(api, server)
    put_shovel(api, "good")
    page = watches(is_phone=True).open(server.management_url)
    log_in(page)
    for route in (SHOVELS, FEDERATION):
        go_to(page, route)
        open_all_sections(page)
        expect(page.locator("td[data-label=State]", has_text="running")).to_be_visible()
        assert overflow(page) <= 0
        assert violations(page) == []
