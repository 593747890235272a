"""Vhosts (management §1.9)."""

from collections.abc import Callable, Iterator

import pytest

from tests.kit.http_api import HttpApi, quote

Name = Callable[[str], str]


@pytest.fixture
def vhost(api: HttpApi, name: Name) -> Iterator[str]:
    """A name for a vhost, which goes with the test."""
    chosen = name("vhost")
    yield chosen
    api.delete(f"/vhosts/{quote(chosen)}")


def test_put_get_delete(api: HttpApi, vhost: str) -> None:
    created = api.put(f"/vhosts/{vhost}", {"description": "d", "tags": "a, b", "tracing": True})
    assert (created.status, created.text) == (201, "")
    found = api.get(f"/vhosts/{vhost}").json
    states = found.pop("cluster_state")
    assert set(states.values()) == {"running"}
    facts = {
        key: found[key]
        for key in ("name", "description", "tags", "default_queue_type", "metadata", "tracing")
    }
    assert facts == {
        "name": vhost,
        "description": "d",
        "tags": ["a", "b"],
        "default_queue_type": "undefined",
        "metadata": {"description": "d", "tags": ["a", "b"]},
        "tracing": True,
    }
    assert api.delete(f"/vhosts/{vhost}").status == 204
    for missing in (api.get(f"/vhosts/{vhost}"), api.delete(f"/vhosts/{vhost}")):
        assert missing.status == 404
        assert missing.json == {"error": "Object Not Found", "reason": "Not Found"}


def test_the_maker_may_do_everything(api: HttpApi, vhost: str) -> None:
    api.put(f"/vhosts/{vhost}")
    row = {"user": "guest", "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
    assert api.get(f"/permissions/{vhost}/guest").json == row
    assert api.get(f"/vhosts/{vhost}/permissions").json == [row]
    assert api.get(f"/vhosts/{vhost}/topic-permissions").json == []


def test_a_second_put(api: HttpApi, vhost: str) -> None:
    """§1.9: it empties what describes the vhost; tracing and the type of queues stay."""
    api.put(
        f"/vhosts/{vhost}", {"description": "d", "tags": ["x"], "tracing": True, "defaultqueuetype": "quorum"}
    )
    assert api.put(f"/vhosts/{vhost}", {"defaultqueuetype": "classic"}).status == 204
    found = api.get(f"/vhosts/{vhost}").json
    assert (found["description"], found["tags"], found["tracing"]) == ("", [], True)
    assert found["default_queue_type"] == "quorum"
    assert found["metadata"] == {"description": "", "tags": [], "default_queue_type": "quorum"}
    api.put(f"/vhosts/{vhost}", {"tracing": "false"})
    assert api.get(f"/vhosts/{vhost}").json["tracing"] is False


@pytest.mark.parametrize("tracing", ["x", 5])
def test_tracing_is_true_or_false(api: HttpApi, vhost: str, tracing: object) -> None:
    answer = api.put(f"/vhosts/{vhost}", {"tracing": tracing})
    assert (answer.status, answer.json["reason"]) == (400, ["not_boolean", tracing])


def test_an_unknown_type_of_queues(api: HttpApi, vhost: str) -> None:
    """RabbitMQ answers with 500."""
    assert api.put(f"/vhosts/{vhost}", {"defaultqueuetype": "nope"}).status in (400, 500)
    assert api.get(f"/vhosts/{vhost}").status == 404


def test_lists(api: HttpApi, vhost: str) -> None:
    api.put(f"/vhosts/{vhost}", {"description": "d"})
    found = api.get("/vhosts").json
    names = [each["name"] for each in found]
    assert vhost in names
    assert names == sorted(names)
    assert {"name", "description", "tags", "metadata", "tracing", "cluster_state"} <= found[0].keys()
    page = api.get(f"/vhosts?page=1&page_size=5&name={vhost}&columns=name,description").json
    assert page == {
        "filtered_count": 1,
        "item_count": 1,
        "items": [{"name": vhost, "description": "d"}],
        "page": 1,
        "page_count": 1,
        "page_size": 5,
        "total_count": len(names),
    }


def test_names_of_all_sorts(api: HttpApi, name: Name) -> None:
    for odd in (" /x", "%2F", "<script>alert(1)</script>", "é", "~", "a+b"):
        chosen = name(odd)
        path = f"/vhosts/{quote(chosen)}"
        try:
            assert api.put(path).status == 201, odd
            assert api.get(path).json["name"] == chosen
        finally:
            assert api.delete(path).status == 204


def test_start(api: HttpApi, vhost: str) -> None:
    api.put(f"/vhosts/{vhost}")
    [node] = api.get(f"/vhosts/{vhost}").json["cluster_state"]
    assert api.post(f"/vhosts/{vhost}/start/{quote(node)}").status == 204
    answer = api.post(f"/vhosts/{vhost}/start/nope@nowhere")
    assert (answer.status, answer.json["reason"]) == (
        400,
        "Request to node nope@nowhere failed with nodedown",
    )
    assert api.post(f"/vhosts/{vhost}x/start/{quote(node)}").status == 400


def test_who_may(api: HttpApi, vhost: str, make_user: Callable[..., str]) -> None:
    """§2.1: all see those of which they have a permission; monitoring all; only administrators one alone."""
    api.put(f"/vhosts/{vhost}")
    user = make_user(vhost)
    for tag in ("management", "policymaker", "monitoring"):
        api.put(f"/users/{user}", {"password": user, "tags": tag})
        names = [each["name"] for each in api.get("/vhosts", user=user).json]
        assert vhost in names
        assert ("/" in names) == (tag == "monitoring")
        for answer in (
            api.get(f"/vhosts/{vhost}", user=user),
            api.put(f"/vhosts/{vhost}", {}, user=user),
            api.delete(f"/vhosts/{vhost}", user=user),
            api.get(f"/vhosts/{vhost}/permissions", user=user),
        ):
            assert (answer.status, answer.json["reason"]) == (401, "Not administrator user")
