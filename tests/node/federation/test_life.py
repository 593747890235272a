"""The life of a link: what changes while it connects, or while it deletes what the former one made upstream."""

from collections.abc import Callable

import pytest

from node.amqp import methods as m
from node.amqp_client.phase import Phase
from node.catalogue.commands import ClearPolicy, SetGlobalParameter
from tests.kit.closing_broker import closes_when_it_opens
from tests.node.federation.sites import Site, Sites

QUEUE = "federation: x -> down"


def pair() -> tuple[Sites, Site, Site]:
    """Return two sites: exchange x of `down` is federated with that of `up`, and the link runs."""
    sites = Sites()
    up, down = sites.site("up"), sites.site("down")
    down.exchange("x", "fanout")
    down.queue("q", "", exchange="x")
    down.set_upstream("u", up)
    down.set_policy("^x$", "u")
    sites.settle()
    assert [each.status for each in down.statuses] == ["running"]
    return sites, up, down


def check_runs(sites: Sites, up: Site, down: Site) -> None:
    """Check that the only link runs, over one connection at each end, and that a message comes."""
    sites.settle()
    assert [each.status for each in down.statuses] == ["running"]
    assert len(sites.links) == 2
    before = down.count("q")
    up.client.publish(1, "", b"m", exchange="x")
    sites.settle()
    assert down.count("q") == before + 1


def test_an_upstream_that_is_changed_and_changed_back_is_as_before() -> None:
    """The second change comes while the link deletes what it had declared for the first."""
    sites, up, down = pair()
    down.set_upstream("u", up, expires=60_000)
    down.follow()
    down.set_upstream("u", up)
    check_runs(sites, up, down)
    (life,) = down.links
    assert life.link.upstream.expires is None
    assert "x-expires" not in up.world.queue(QUEUE).record.arguments


def test_a_name_that_changes_while_a_link_changes_does_not_undo_that() -> None:
    sites, up, down = pair()
    down.set_upstream("u", up, expires=60_000)
    down.follow()
    down.world.submit(SetGlobalParameter("cluster_name", "other"))
    check_runs(sites, up, down)
    (life,) = down.links
    assert life.link.upstream.expires == 60_000
    assert "federation: x -> other" in up.world.queue_names
    assert QUEUE not in up.world.queue_names


def _restart(down: Site) -> None:
    (life,) = down.links
    life.restart()


def _change(down: Site) -> None:
    down.set_upstream("u", "amqp://up", prefetch_count=7)


@pytest.mark.parametrize("what", [_restart, _change])
def test_a_link_that_waits_for_its_predecessor_connects_once(what: Callable[[Site], None]) -> None:
    """A policy went and came back, and the former link still deletes what it had made upstream."""
    sites, up, down = pair()
    down.world.submit(ClearPolicy("/", "fed"))
    down.follow()
    down.set_policy("^x$", "u")
    down.follow()
    what(down)
    check_runs(sites, up, down)


def test_a_restart_while_a_link_changes_leaves_it_running() -> None:
    sites, up, down = pair()
    down.set_upstream("u", up, expires=60_000)
    down.follow()
    _restart(down)
    check_runs(sites, up, down)
    (life,) = down.links
    assert life.link.upstream.expires == 60_000


def test_an_upstream_that_closes_with_the_bytes_that_open_is_tried_again() -> None:
    """A broker that stops may send `connection.close` right behind `connection.open-ok`."""
    sites, up, down = pair()
    with closes_when_it_opens(up.world):
        up.cut_links()
        sites.advance(5)
        (status,) = down.statuses
        assert status.status == "shutdown"
        assert "CONNECTION_FORCED" in status.error
    sites.advance(30)
    check_runs(sites, up, down)


def test_a_broker_here_that_takes_nothing_while_the_link_connects_holds_it_back() -> None:
    """The handshake goes on, and no message is read until the broker here takes messages again."""
    sites, up, down = pair()
    up.cut_links()
    sites.settle()
    up.client.publish(1, "", b"m", exchange="x")
    _restart(down)
    down.hold_links(is_held=True)
    sites.settle()
    assert {link.core.phase for link in sites.links} == {Phase.RUNNING}
    assert down.count("q") == 0
    down.hold_links(is_held=False)
    sites.settle()
    assert down.count("q") == 1


def test_what_a_link_made_is_deleted_though_the_broker_here_takes_nothing() -> None:
    sites, up, down = pair()
    down.hold_links(is_held=True)
    down.world.submit(ClearPolicy("/", "fed"))
    sites.settle()
    assert QUEUE not in up.world.queue_names
    assert not sites.links


def test_an_exchange_that_is_gone_is_looked_at_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short-lived exchanges that a policy federates must not add up."""
    sites, _, down = pair()
    down.client.ask(1, m.ExchangeDelete(exchange="x"))
    sites.settle()
    assert not list(down.links)
    looked_at = []
    exchange = type(down.world.broker.catalogue).exchange
    monkeypatch.setattr(
        type(down.world.broker.catalogue),
        "exchange",
        lambda self, vhost, name: looked_at.append(name) or exchange(self, vhost, name),
    )
    down.set_upstream("u", "amqp://other")
    down.follow()
    assert "x" not in looked_at
