"""The checks of the parameter `shovel`, and how it is shown."""

import html
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.shovel.conftest import Shovels
from tests.kit.http_api import quote

BASE: dict[str, Any] = {"src_uri": "amqp://", "src_queue": "q", "dest_uri": "amqp://", "dest_queue": "r"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"src_queue": None}, "Must specify 'src-exchange' or 'src-queue'"),
        ({"src_exchange": "x"}, "Cannot specify 'src-exchange' and 'src-queue'"),
        ({"dest_exchange": "x"}, "Cannot specify 'dest-exchange' and 'dest-queue'"),
        ({"ack_mode": "no-ack", "delete_after": 5}, "Cannot specify 'no-ack' and numerical 'delete-after'"),
        ({"dest_uri": None}, 'Key "dest-uri" not found in NAME'),
        ({"src_uri": 5}, "src-uri should be list, actually was 5"),
        ({"src_uri": [5]}, "src-uri should be list, actually was 5"),
        ({"x": 1}, 'Unrecognised terms [{<<"x">>,1}] in NAME'),
        (
            {"ack_mode": "maybe"},
            'ack-mode should be one of [<<"no-ack">>,<<"on-publish">>,<<"on-confirm">>], '
            'actually was <<"maybe">>',
        ),
        ({"ack_mode": 5}, "ack-mode should be binary, actually was 5"),
        ({"src_prefetch_count": "x"}, 'src-prefetch-count should be a number, actually was <<"x">>'),
        (
            {"src_delete_after": "soon"},
            'src-delete-after should be a number greater than or equal to 0, "never" or "queue-length", '
            'actually was <<"soon">>',
        ),
        (
            {"dest_publish_properties": {"y": 1}},
            'Unrecognised terms [{<<"y">>,1}] in dest-publish-properties',
        ),
        (
            {"dest_publish_properties": {"delivery_mode": "x"}},
            'delivery_mode should be a number, actually was <<"x">>',
        ),
        ({"dest_queue": 5}, "dest-queue should be binary, actually was 5"),
        ({"reconnect_delay": "x"}, 'reconnect-delay should be a number, actually was <<"x">>'),
        ({"src_uri": "http://h"}, '"http://h" not a valid URI: {{unexpected_uri_scheme,"http"},"http://h"}'),
        (
            {"src_uri": ["amqp://h", "amqp://h:99999"]},
            '"amqp://h:99999" not a valid URI: {{port_out_of_range,99999},"amqp://h:99999"}',
        ),
        ({"dest_uri": "amqp://:5672"}, '"amqp://:5672" not a valid URI: {port_requires_host,"amqp://:5672"}'),
        ({"dest_uri": "amqp:///none"}, 'user "guest" may not connect to vhost "none"'),
    ],
)
def test_what_is_wrong_is_told(
    shovels: Shovels, name: Callable[[str], str], changes: dict[str, Any], problem: str
) -> None:
    shovel = name("s")
    answer = shovels.put(shovel, **(BASE | changes))
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    reason = html.unescape(answer.json["reason"])  # RabbitMQ writes JSON as if it were HTML
    assert reason == f"Validation failed\n\n{problem.replace('NAME', shovel)}\n"


def test_a_parameter_is_shown_as_it_was_set(shovels: Shovels, name: Callable[[str], str]) -> None:
    shovel = name("s")
    shovels.set(shovel, **BASE, ack_mode="on-publish", src_prefetch_count=7)
    answer = shovels.api.get(f"/parameters/shovel/%2F/{quote(shovel)}")
    assert answer.json == {
        "component": "shovel",
        "name": shovel,
        "vhost": "/",
        "value": {
            "ack-mode": "on-publish",
            "dest-queue": "r",
            "dest-uri": "amqp://",
            "src-prefetch-count": 7,
            "src-queue": "q",
            "src-uri": "amqp://",
        },
    }
    definitions = shovels.api.get("/definitions").json["parameters"]
    assert shovel in [each["name"] for each in definitions if each["component"] == "shovel"]


def test_a_shovel_is_deleted_and_restarted(shovels: Shovels, name: Callable[[str], str]) -> None:
    shovel = name("s")
    shovels.set(shovel, **(BASE | {"src_queue": name("q"), "dest_queue": name("r")}))
    shovels.await_state(shovel, "running")
    where = f"/shovels/vhost/%2F/{quote(shovel)}"
    assert shovels.api.delete(f"{where}/restart").status == 204
    shovels.await_state(shovel, "running")
    assert shovels.api.delete(where).status == 204
    assert shovels.api.get(f"/parameters/shovel/%2F/{quote(shovel)}").status == 404
    assert shovels.row(shovel) is None
    assert shovels.api.delete(where).status == 404
    assert shovels.api.delete(f"{where}/restart").status == 404
    assert shovels.api.get("/shovels/none").status == 404
