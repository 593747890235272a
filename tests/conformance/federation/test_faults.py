"""Links that cannot work say why, in RabbitMQ's words: each fault is shown by Fluffle's link and by RabbitMQ's."""

import pytest

from node.amqp import methods as m
from tests.conformance.federation.place import Place, in_one_line
from tests.kit.ports import free_port

pytestmark = pytest.mark.slow

LOGIN = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."


@pytest.fixture
def fault(downstream: Place) -> Place:
    """A downstream with an exchange that is to be federated."""
    downstream.exchange("fault-x")
    downstream.queue("fault-q", "#", exchange="fault-x")
    downstream.federate("^fault-x$", "fault", "fault")
    return downstream


def test_wrong_password(fault: Place, upstream: Place) -> None:
    """A refused login is told as the upstream said it."""
    host, port = upstream.server.host, upstream.server.port
    fault.set_upstream("fault", f"amqp://guest:wrong@{host}:{port}")
    state = fault.await_failure()
    assert (state.status, in_one_line(state.error)) == ("error", f'{{auth_failure,"{LOGIN}"}}')


def test_nobody_listens(fault: Place) -> None:
    """A port on which nobody listens is told by the name of the error."""
    fault.set_upstream("fault", f"amqp://127.0.0.1:{free_port()}")
    state = fault.await_failure()
    assert (state.status, state.error) == ("error", "econnrefused")


def test_missing_vhost(fault: Place, upstream: Place) -> None:
    """A vhost that is not there."""
    fault.set_upstream("fault", f"{upstream.uri}/nowhere")
    state = fault.await_failure()
    assert (state.status, in_one_line(state.error)) == ("error", "not_allowed")


def test_missing_permission(fault: Place, upstream: Place) -> None:
    """A user who may not declare the queue upstream."""
    upstream.admin.add_user("reader", "reader")
    upstream.admin.set_permissions("reader", "/", "^$", "^$", ".*")
    host, port = upstream.server.host, upstream.server.port
    fault.set_upstream("fault", f"amqp://reader:reader@{host}:{port}")
    state = fault.await_failure()
    text = (
        f"ACCESS_REFUSED - access to queue 'federation: fault-x -> {fault.name}' in vhost '/' refused for user "
        "'reader'"
    )
    assert (state.status, in_one_line(state.error)) == (
        "shutdown",
        f'{{server_initiated_close,403,<<"{text}">>}}',
    )


def test_queue_of_other_arguments(fault: Place, upstream: Place) -> None:
    """A queue upstream that was declared otherwise."""
    upstream.queue(f"federation: fault-x -> {fault.name}")
    fault.set_upstream("fault", upstream.uri, message_ttl=5)
    state = fault.await_failure()
    assert state.status == "shutdown"
    assert in_one_line(state.error).startswith(
        '{server_initiated_close,406,<<"PRECONDITION_FAILED - inequivalent arg '
    )
    fault.clear_upstream("fault")
    with upstream.channel() as channel:
        channel.call(m.QueueDelete, queue=f"federation: fault-x -> {fault.name}")
    fault.set_upstream("fault", upstream.uri)
    fault.await_links()
