"""Mirrored queues on more nodes than three: whole brokers, real rings. Rows of reliability §2.2."""

from node.amqp.methods import BasicConsume
from node.catalogue.commands import SetPolicy
from tests.kit.cluster import RingCluster, client_of


def test_kill_intermediate() -> None:
    """§2.2 many_node_ha kill_intermediate: four of six nodes die in traffic; a consumer on the fifth gets all."""
    names = ["n1", "n2", "n3", "n4", "n5", "n6"]
    cluster = RingCluster(*names)
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.declare_mirrored("q", *names)
    consumer, publisher = client_of(cluster["n5"]), client_of(cluster["n6"])
    consumer.ask(1, BasicConsume(queue="q", no_ack=True))
    seen: set[bytes] = set()
    for number in range(60):
        publisher.publish(1, "q", b"%d" % number)
        if number in (20, 40):
            for name in names[:2] if number == 20 else names[2:4]:
                cluster.crash(name)
        if number % 7 == 0:
            cluster.settle()
            seen.update(consumer.bodies())
    cluster.settle()
    seen.update(consumer.bodies())
    assert seen == {b"%d" % number for number in range(60)}


def test_change_cluster() -> None:
    """§2.2 change_cluster: exactly 4 on three nodes has three copies; a fourth comes, and another one when it goes."""
    cluster = RingCluster("n1", "n2", "n3")
    cluster.submit(
        SetPolicy("/", "ha", "^q", {"ha-mode": "exactly", "ha-params": 4, "ha-sync-mode": "automatic"})
    )
    cluster.declare_mirrored("q", "n1", "n2", "n3")
    client_of(cluster["n2"]).publish(1, "q", b"one", b"two")
    cluster.settle()

    def copies() -> tuple[set[str], set[str]]:
        record = cluster["n1"].broker.catalogue.queue("/", "q")
        assert record is not None
        status = cluster["n1"].mirrors.status(record)
        return set(status.ring), set(status.synced)

    assert copies() == ({"n1", "n2", "n3"},) * 2
    for name in ("n4", "n5"):
        cluster.join(name)
    cluster.advance(2.0)
    with_fourth, synced = copies()
    (fourth,) = with_fourth - {"n1", "n2", "n3"}
    assert synced == with_fourth
    cluster.crash(fourth)
    cluster.advance(2.0)
    (other,) = {"n4", "n5"} - {fourth}
    assert copies() == ({"n1", "n2", "n3", other},) * 2
