"""The official Grafana overview fills: what its queries join is there on each node, and moves (management §5.1, §5.2).

A scraper adds `instance` to each row. Nearly every query is
`M * on(instance) group_left(rabbitmq_cluster, rabbitmq_node) rabbitmq_identity_info{rabbitmq_cluster="…"}`.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from node.amqp import methods
from tests.conformance.http.steps import eventually
from tests.conformance.http.test_prometheus import DASHBOARD, Page, scrape
from tests.kit.amqp_client import Connection
from tests.kit.server_cluster import is_rabbitmq
from tests.kit.servers import Server

pytestmark = pytest.mark.slow  # three processes

IDENTITY: Final = "rabbitmq_identity_info"
OF_THE_SCRAPER: Final = {"instance", "job", "namespace", "rabbitmq_cluster", "rabbitmq_node"}
"""Rows that had these of their own would be renamed by the scraper, or be overwritten by the join."""

ALIKE: Final = (
    ("resident_memory_limit_bytes", "process_resident_memory_bytes"),
    ("process_max_fds", "process_open_fds"),
    ("process_max_tcp_sockets", "process_open_tcp_sockets"),
    ("global_messages_received_confirm_total", "global_messages_confirmed_total"),
    (
        "global_messages_delivered_consume_auto_ack_total",
        "global_messages_delivered_consume_manual_ack_total",
    ),
)
"""Added or subtracted row by row: what has no partner with the same labels disappears."""

COUNTERS: Final = [each for each in DASHBOARD.split() if each.endswith("_total")]
TOTALS: Final = [each for each in DASHBOARD.split() if not each.endswith(("_total", "_info"))]

Totals = dict[tuple[str, str], float]
"""By metric and node: what `sum(…) by (rabbitmq_node)` shows."""


@pytest.fixture(scope="module")
def nodes(request: pytest.FixtureRequest) -> list[Server]:
    """Three nodes of a cluster. Of RabbitMQ one by itself, whose pages have the same rows."""
    if is_rabbitmq():
        return [request.getfixturevalue("server")] * 3
    from tests.kit.managed_fluffle import managed

    cluster = request.getfixturevalue("managed_cluster")
    cluster.heal()
    return list(managed(cluster))


def identity(page: Page) -> dict[str, str]:
    """The one row to join with: a second one would end the query with an error."""
    ((labels, value),) = [
        (dict(labels), value) for (name, labels), value in page.rows.items() if name == IDENTITY
    ]
    assert value == 1
    return labels


def joined(pages: list[Page], metric: str) -> Totals:
    """`sum(metric * on(instance) group_left(…) identity) by (rabbitmq_node)`."""
    found: Totals = {}
    for page in pages:
        node = identity(page)["rabbitmq_node"]
        for (name, labels), value in page.rows.items():
            if name == metric:
                assert not OF_THE_SCRAPER & dict(labels).keys()
                found[metric, node] = found.get((metric, node), 0) + value
    return found


def look(nodes: list[Server]) -> list[Page]:
    return [scrape(node) for node in dict.fromkeys(nodes)]


def all_counters(nodes: list[Server]) -> Totals:
    pages = look(nodes)
    return {key: value for metric in COUNTERS for key, value in joined(pages, metric).items()}


def test_nodes_are_told_apart(nodes: list[Server]) -> None:
    """The variable rabbitmq_cluster has one value, and each node a name of its own."""
    found = [identity(page) for page in look(nodes)]
    assert len({each["rabbitmq_cluster"] for each in found}) == 1
    assert len({each["rabbitmq_cluster_permanent_id"] for each in found}) == 1
    assert sorted(each["rabbitmq_node"] for each in found) == sorted(
        {each["rabbitmq_node"] for each in found}
    )
    assert all(found[0].values())


def test_pages_have_nothing_of_the_scraper(nodes: list[Server]) -> None:
    """No row but the identity has labels that the join gives, and no row comes twice."""
    for page in look(nodes):
        for name, labels in page.rows:
            assert name == IDENTITY or not OF_THE_SCRAPER & dict(labels).keys(), name
        lines = [line.rsplit(" ", 1)[0] for line in page.text.splitlines() if not line.startswith("#")]
        assert len(lines) == len(set(lines))


@pytest.mark.parametrize("pair", ALIKE)
def test_what_is_reckoned_row_by_row(nodes: list[Server], pair: tuple[str, str]) -> None:
    for page in look(nodes):
        rows = [sorted(map(sorted, map(dict.items, page.labels_of(name)))) for name in pair]
        assert rows[0] == rows[1] != []


def work(clients: list[Connection], queue: str) -> Callable[[], None]:
    """All that the dashboard counts: the queue on the first node, publishers on the second, consumers on the third.

    Gives what ends it.
    """
    owner, publisher, consumer = (each.channel(9) for each in clients)
    owner.declare(queue)
    publisher.call(methods.ConfirmSelect)
    for _ in range(6):
        publisher.publish("", queue, b"x")
        publisher.expect(methods.BasicAck)
    publisher.publish("", queue + "-nowhere", b"x")
    publisher.expect(methods.BasicAck)
    publisher.publish("", queue + "-nowhere", b"x", mandatory=True)
    publisher.expect_content(methods.BasicReturn)
    publisher.expect(methods.BasicAck)
    assert consumer.wait_get(queue, no_ack=True)
    got = consumer.wait_get(queue, no_ack=False)
    consumer.send(methods.BasicNack, delivery_tag=got.method.delivery_tag, requeue=True)
    assert consumer.wait_get(queue, no_ack=False).method.redelivered
    consumer.call(methods.BasicQos, prefetch_count=2)
    tag = consumer.consume(queue)
    for _ in range(2):
        delivered = consumer.deliver()
    consumer.send(methods.BasicAck, delivery_tag=delivered.method.delivery_tag, multiple=False)
    consumer.deliver()
    consumer.call(methods.BasicCancel, consumer_tag=tag)
    consumer.consume(queue, no_ack=True)
    consumer.deliver()
    assert consumer.get(queue) is None

    def end() -> None:
        owner.call(methods.QueueDelete, queue=queue)
        for each in (owner, publisher, consumer):
            each.close()
        for connection in clients:
            connection.close()

    return end


def test_every_panel_moves(
    nodes: list[Server], connect: Callable[..., Connection], name: Callable[[str], str]
) -> None:
    """Each counter that a query names rises by the traffic, on the node whose client it was."""
    before = all_counters(nodes)
    work([connect(to=node) for node in nodes], name("grafana"))()

    def risen() -> dict[str, float]:
        now = all_counters(nodes)
        return {
            metric: sum(value - before[key] for key, value in now.items() if key[0] == metric)
            for metric in COUNTERS
        }

    eventually(lambda: all(value > 0 for value in risen().values()))
    if is_rabbitmq():
        return
    names = [identity(scrape(node))["rabbitmq_node"] for node in nodes]
    now = all_counters(nodes)

    def by_node(metric: str) -> list[float]:
        key = f"rabbitmq_global_messages_{metric}_total"
        return [now[key, node] - before[key, node] for node in names]

    assert by_node("received") == by_node("confirmed") == [0, 8, 0]
    assert by_node("routed") == [0, 6, 0]
    assert by_node("unroutable_dropped") == by_node("unroutable_returned") == [0, 1, 0]
    assert by_node("delivered_consume_manual_ack") == [0, 0, 3]


def test_totals_of_a_cluster(
    nodes: list[Server], connect: Callable[..., Connection], name: Callable[[str], str]
) -> None:
    """Each is there on each node; sums over nodes count nothing twice."""
    clients = [connect(to=node) for node in nodes]
    for connection in clients:
        connection.channel(7)
    queue = name("grafana-totals")
    owner = clients[0].channel(8)
    before = _sums(look(nodes))
    owner.declare(queue)
    try:
        clients[2].channel(8).consume(queue)
        wanted: dict[str, Any] = {"rabbitmq_queues": 1, "rabbitmq_consumers": 1}

        def grown() -> bool:
            now = _sums(look(nodes))
            return all(now[metric] - before[metric] == by for metric, by in wanted.items())

        eventually(grown)
        pages = look(nodes)
        for metric in TOTALS:
            assert len(joined(pages, metric)) == len(pages), metric
        for metric in ("rabbitmq_connections", "rabbitmq_channels", "rabbitmq_build_info"):
            assert all(value >= 1 for value in joined(pages, metric).values())

        def has_publishers() -> bool:
            """Channels without consumers, as the dashboard reckons them."""
            sums = _sums(look(nodes))
            return sums["rabbitmq_channels"] > sums["rabbitmq_channel_consumers"] >= 1

        eventually(has_publishers)
    finally:
        owner.call(methods.QueueDelete, queue=queue)


def _sums(pages: list[Page]) -> dict[str, float]:
    return {metric: sum(joined(pages, metric).values()) for metric in TOTALS}
