"""The catalogue of amqp-behaviour §10."""

import pytest

from node.amqp import methods
from node.amqp.methods import (
    METHODS,
    AccessRequest,
    BasicNack,
    BasicReject,
    ExchangeUnbindOk,
    Method,
    QueueDeclare,
    QueueUnbind,
)

# §10: ids, name, fields in wire order.
CATALOGUE = """
10,10 connection.start version_major version_minor server_properties mechanisms locales
10,11 connection.start-ok client_properties mechanism response locale
10,20 connection.secure challenge
10,21 connection.secure-ok response
10,30 connection.tune channel_max frame_max heartbeat
10,31 connection.tune-ok channel_max frame_max heartbeat
10,40 connection.open virtual_host capabilities insist
10,41 connection.open-ok known_hosts
10,50 connection.close reply_code reply_text failed_class_id failed_method_id
10,51 connection.close-ok
10,60 connection.blocked reason
10,61 connection.unblocked
10,70 connection.update-secret new_secret reason
10,71 connection.update-secret-ok
20,10 channel.open out_of_band
20,11 channel.open-ok channel_id
20,20 channel.flow active
20,21 channel.flow-ok active
20,40 channel.close reply_code reply_text failed_class_id failed_method_id
20,41 channel.close-ok
30,10 access.request realm exclusive passive active write read
30,11 access.request-ok ticket
40,10 exchange.declare ticket exchange type passive durable auto_delete internal nowait arguments
40,11 exchange.declare-ok
40,20 exchange.delete ticket exchange if_unused nowait
40,21 exchange.delete-ok
40,30 exchange.bind ticket destination source routing_key nowait arguments
40,31 exchange.bind-ok
40,40 exchange.unbind ticket destination source routing_key nowait arguments
40,51 exchange.unbind-ok
50,10 queue.declare ticket queue passive durable exclusive auto_delete nowait arguments
50,11 queue.declare-ok queue message_count consumer_count
50,20 queue.bind ticket queue exchange routing_key nowait arguments
50,21 queue.bind-ok
50,30 queue.purge ticket queue nowait
50,31 queue.purge-ok message_count
50,40 queue.delete ticket queue if_unused if_empty nowait
50,41 queue.delete-ok message_count
50,50 queue.unbind ticket queue exchange routing_key arguments
50,51 queue.unbind-ok
60,10 basic.qos prefetch_size prefetch_count global_
60,11 basic.qos-ok
60,20 basic.consume ticket queue consumer_tag no_local no_ack exclusive nowait arguments
60,21 basic.consume-ok consumer_tag
60,30 basic.cancel consumer_tag nowait
60,31 basic.cancel-ok consumer_tag
60,40 basic.publish ticket exchange routing_key mandatory immediate
60,50 basic.return reply_code reply_text exchange routing_key
60,60 basic.deliver consumer_tag delivery_tag redelivered exchange routing_key
60,70 basic.get ticket queue no_ack
60,71 basic.get-ok delivery_tag redelivered exchange routing_key message_count
60,72 basic.get-empty cluster_id
60,80 basic.ack delivery_tag multiple
60,90 basic.reject delivery_tag requeue
60,100 basic.recover-async requeue
60,110 basic.recover requeue
60,111 basic.recover-ok
60,120 basic.nack delivery_tag multiple requeue
85,10 confirm.select nowait
85,11 confirm.select-ok
90,10 tx.select
90,11 tx.select-ok
90,20 tx.commit
90,21 tx.commit-ok
90,30 tx.rollback
90,31 tx.rollback-ok
"""


def test_the_catalogue_of_10_is_complete() -> None:
    lines = [
        " ".join([f"{ids[0]},{ids[1]}", cls.name, *cls.__annotations__])
        for ids, cls in sorted(METHODS.items())
    ]
    assert lines == CATALOGUE.strip().splitlines()


@pytest.mark.parametrize("cls", METHODS.values(), ids=lambda cls: cls.name)
def test_class_names_follow_the_names_of_the_methods(cls: type[Method]) -> None:
    assert cls.__name__ == cls.name.title().replace(".", "").replace("-", "")
    assert getattr(methods, cls.__name__) is cls
    assert METHODS[cls.class_id, cls.method_id] is cls


@pytest.mark.parametrize("cls", METHODS.values(), ids=lambda cls: cls.name)
def test_every_method_can_be_made_with_defaults_and_has_no_room_for_strangers(cls: type[Method]) -> None:
    assert cls() == cls()
    assert not hasattr(cls(), "__dict__")


def test_only_four_methods_have_content() -> None:
    assert {cls.name for cls in METHODS.values() if cls.has_content} == {
        "basic.publish",
        "basic.return",
        "basic.deliver",
        "basic.get-ok",
    }


def test_exchange_unbind_ok_is_method_51() -> None:
    """§10, row exchange.unbind-ok: the id is not 41."""
    assert ExchangeUnbindOk.method_id == 51


def test_queue_unbind_has_no_nowait() -> None:
    """§10, row queue.unbind."""
    assert not hasattr(QueueUnbind(), "nowait")


def test_defaults_of_the_specification_that_are_true() -> None:
    assert BasicReject().requeue
    assert BasicNack().requeue
    assert AccessRequest().passive


def test_arguments_are_not_shared() -> None:
    assert QueueDeclare().arguments is not QueueDeclare().arguments
