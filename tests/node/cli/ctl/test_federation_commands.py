"""Commands about federation links: as a live RabbitMQ 3.10.8's."""

from typing import Any

from tests.node.cli.ctl.fake_node import FakeNode, Run

LINKS: list[dict[str, Any]] = [
    {
        "node": "n",
        "exchange": "x",
        "upstream_exchange": "x",
        "type": "exchange",
        "vhost": "/",
        "upstream": "u",
        "id": "94e1e050",
        "status": "running",
        "local_connection": "<n.5>",
        "uri": "amqp://up",
        "timestamp": "2026-11-28 9:03:29",
        "counters": {"taken": 1},
    },
    {
        "node": "n",
        "queue": "q",
        "upstream_queue": "q",
        "consumer_tag": "federation-link-u",
        "type": "queue",
        "vhost": "/",
        "upstream": "u",
        "id": "11f86d75",
        "status": "error",
        "error": "econnrefused",
        "uri": "amqp://up",
        "timestamp": "2026-11-28 12:03:29",
    },
]


def test_status_is_erlang_s_maps(run: Run, fake: FakeNode) -> None:
    """Without another formatter links are printed as Erlang's maps, with RabbitMQ's keys in their order."""
    fake.answers = {"federation_status": {"rows": LINKS}}
    code, output, errors = run("-q", "federation_status")
    assert (code, errors) == (0, "")
    assert output == (
        '[#{consumer_tag => <<>>,error => <<>>,exchange => <<"x">>,id => <<"94e1e050">>,'
        'last_changed => <<"2026-11-28 09:03:29">>,local_connection => <<"<n.5>">>,queue => <<>>,'
        'status => running,type => exchange,upstream => <<"u">>,upstream_exchange => <<"x">>,'
        'upstream_queue => <<>>,uri => <<"amqp://up">>,vhost => <<"/">>},\n'
        ' #{consumer_tag => <<"federation-link-u">>,error => <<"econnrefused">>,exchange => <<>>,'
        'id => <<"11f86d75">>,last_changed => <<"2026-11-28 12:03:29">>,local_connection => <<>>,'
        'queue => <<"q">>,status => error,type => queue,upstream => <<"u">>,upstream_exchange => <<>>,'
        'upstream_queue => <<"q">>,uri => <<"amqp://up">>,vhost => <<"/">>}]\n'
    )
    assert fake.asked == [("federation_status", {"only_down": False})]


def test_only_links_that_are_down(run: Run, fake: FakeNode) -> None:
    """The option is passed on, and the banner says so."""
    fake.answers = {"federation_status": {"rows": []}}
    code, output, _ = run("federation_status", "--only-down")
    assert code == 0
    assert output.startswith("Listing federation links which are down on node ")
    assert output.endswith("...\n[]\n")
    assert fake.asked == [("federation_status", {"only_down": True})]


def test_restart(run: Run, fake: FakeNode) -> None:
    """A link is named by its id."""
    code, output, errors = run("restart_federation_link", "94e1e050")
    assert (code, errors) == (0, "")
    assert output.startswith("Restarting federation link 94e1e050 on node ")
    assert fake.asked == [("restart_federation_link", {"link_id": "94e1e050"})]
