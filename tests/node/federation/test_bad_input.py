"""Faults of an upstream and its messages: the state says what is wrong, waits are bounded, and nothing is lost.

`tests/conformance/federation/test_faults.py` asks RabbitMQ the same.
"""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from node.amqp import methods as m
from node.amqp.frames import content_frames, method_frame
from node.amqp.methods import QueueDelete, QueuePurge
from node.amqp.properties import Properties, content_header
from node.amqp_client.contents import with_properties
from node.catalogue.commands import PutUser, SetPermission
from node.catalogue.passwords import SHA256, hash_password
from node.federation.rows import link_row
from tests.node.federation.sites import Site, Sites

HOUR_S = 3600.0
QUEUE = "federation: x -> down"


def pair(uri: str = "amqp://up", **upstream: object) -> tuple[Sites, Site, Site]:
    """Return two sites, not settled: exchange x of `down` is to be federated with that of `up`."""
    sites = Sites()
    up, down = sites.site("up"), sites.site("down")
    down.exchange("x", "fanout")
    down.queue("q", "", exchange="x")
    down.set_upstream("u", uri, **upstream)
    down.set_policy("^x$", "u")
    return sites, up, down


def publish(site: Site, *bodies: bytes) -> None:
    """Publish to exchange x."""
    site.client.publish(1, "", *bodies, exchange="x")


def bodies(site: Site) -> list[bytes]:
    """Return all messages that are in queue q, and take them."""
    client = site.consume("q")
    found = [each.body for each in client.received() if each.body]
    client.lose()
    return found


@pytest.mark.parametrize(
    "reason",
    ["tls_alert: self-signed certificate", "tls_alert: certificate has expired", "etimedout", "enoent"],
)
def test_a_certificate_that_does_not_fit_is_told(reason: str) -> None:
    """The state has the reason for which there is no connection, and the link comes back once it can."""
    sites, up, down = pair()
    up.is_cut, up.fault = True, reason
    sites.settle()
    (status,) = down.statuses
    assert (status.status, status.error, status.uri) == ("error", reason, "amqp://up")
    up.is_cut = False
    sites.advance(5)
    assert [each.status for each in down.statuses] == ["running"]


def test_a_permission_that_is_missing_upstream() -> None:
    """The state has the upstream's text; with the permission the link runs at the next attempt."""
    sites, up, down = pair("amqp://u:u@up")
    up.world.submit(PutUser("u", hash_password("u", b"salt"), SHA256))
    up.world.submit(SetPermission("/", "u", "^$", "^$", ".*"))
    sites.settle()
    (status,) = down.statuses
    assert status.status == "shutdown"
    assert status.error.startswith("{server_initiated_close,403,<<\"ACCESS_REFUSED - access to queue '")
    assert "u:u" not in f"{status} {down.lines}"
    up.world.submit(SetPermission("/", "u", "^(x$|federation: )", "^(x$|federation: )", "^(x$|federation: )"))
    sites.advance(5)
    assert [each.status for each in down.statuses] == ["running"]


def test_a_queue_of_other_arguments_upstream() -> None:
    """The link waits longer and longer, and runs once the queue is gone; nothing of that queue is deleted by it."""
    sites, up, down = pair(message_ttl=60_000)
    up.queue(QUEUE)
    up.client.publish(1, QUEUE, b"theirs")
    sites.settle()
    (life,) = down.links
    assert life.status.status == "shutdown"
    assert life.status.error.startswith(
        '{server_initiated_close,406,<<"PRECONDITION_FAILED - inequivalent arg '
    )
    sites.advance(HOUR_S)
    assert HOUR_S / 30 - 1 <= life.counters.failures <= HOUR_S / 30 + 5
    assert up.count(QUEUE) == 1
    up.client.ask(1, QueueDelete(queue=QUEUE))
    sites.advance(30)
    assert life.status.status == "running"


def test_a_message_that_is_too_large_here_stays_upstream() -> None:
    """The broker here closes the link's channel for it: the waits grow, as no attempt moves anything."""
    sites, up, down = pair()
    sites.settle()
    broker = down.world.broker
    broker.settings = replace(broker.settings, message_max_bytes=10)
    publish(up, b"x" * 11)
    sites.settle()
    (life,) = down.links
    assert life.status.status == "downstream_channel_down"
    assert "PRECONDITION_FAILED - message size 11 is larger than configured max size 10" in life.status.error
    sites.advance(HOUR_S)
    assert life.counters.failures <= HOUR_S / 30 + 5
    queue = up.world.queue(QUEUE)
    assert queue.backlog.count + queue.unacked_count == 1
    up.client.ask(1, QueuePurge(queue=QUEUE))
    publish(up, b"small")
    sites.advance(30)
    assert life.status.status == "running"
    assert bodies(down) == [b"small"]


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish"])
def test_a_message_with_malformed_properties_makes_the_waits_grow(mode: str) -> None:
    """A message that cannot be passed on is no work done, though the link ran."""
    sites, _, down = pair(ack_mode=mode)
    sites.settle()
    (life,) = down.links
    content = content_frames(1, content_header(1, Properties()), b"m", 4096)
    deliver = m.BasicDeliver(
        consumer_tag="c", delivery_tag=1, redelivered=False, exchange="x", routing_key=""
    )
    broken = method_frame(1, deliver) + with_properties(content, b"\x80\x00")
    for failures in (1, 2, 3):
        assert life.status.status == "running"
        upstream = next(link for link in sites.links if not link.name)
        upstream.core.receive_data(broken, sites.now)
        sites.settle()
        assert life.status.error.startswith("malformed_properties")
        assert life._backoff.failures == failures
        sites.advance(30)


def test_an_upstream_that_vanishes_for_hours_after_it_ran() -> None:
    """Six hours cost an attempt each half a minute, and all that came meanwhile is there afterwards."""
    sites, up, down = pair(reconnect_delay=0)
    sites.settle()
    (life,) = down.links
    up.is_cut = True
    up.cut_links()
    sites.settle()
    publish(up, *(b"%d" % number for number in range(20)))
    sites.advance(6 * HOUR_S)
    assert 6 * 120 <= life.counters.failures <= 6 * 120 + 20
    assert len(sites.links) <= 1  # no connections are left behind
    up.is_cut = False
    sites.advance(30)
    assert life.status.status == "running"
    assert bodies(down) == [b"%d" % number for number in range(20)]


def test_a_ring_of_three_sites_passes_each_message_once() -> None:
    """A loop of links ends where the message began, whatever `max-hops` allows."""
    sites = Sites()
    ring = [sites.site(name) for name in ("one", "two", "three")]
    for number, site in enumerate(ring):
        site.exchange("x", "fanout")
        site.queue("q", "", exchange="x")
        site.set_upstream("u", ring[number - 1], max_hops=10)
        site.set_policy("^x$", "u")
    sites.settle()
    publish(ring[0], b"m")
    sites.advance(60)
    assert [bodies(site) for site in ring] == [[b"m"]] * 3


def test_a_clock_that_is_set_changes_nothing_but_what_is_shown() -> None:
    """Waits and pauses go by the monotonic clock, at either end."""
    sites, up, down = pair()
    up.is_cut = True
    sites.settle()
    (life,) = down.links
    for shift_s in (-86_400.0, 365 * 86_400.0, -1.0):
        down.wall_shift_s, up.wall_shift_s = shift_s, -shift_s
        failures = life.counters.failures
        sites.advance(30)
        assert life.counters.failures > failures
        assert abs(life.status.since_s - down.wall_s) <= 30
    up.is_cut = False
    sites.advance(30)
    assert life.status.status == "running"


def test_passwords_are_in_no_state_log_or_row() -> None:
    """A link whose login fails shows its URI without user and password."""
    sites, _, down = pair("amqp://guest:secret@up")
    sites.settle()
    (life,) = down.links
    assert life.status.error.startswith('{auth_failure,"ACCESS_REFUSED - Login was refused')
    row = link_row(life, "n", lambda at: datetime.fromtimestamp(at, UTC))
    assert "secret" not in f"{row} {down.lines} {life.status}"
