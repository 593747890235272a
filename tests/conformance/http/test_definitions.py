"""Definitions exported and imported (management §2.2)."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.http.steps import bad_request, path
from tests.kit.http_api import HttpApi

WHOLE = [
    "rabbit_version",
    "rabbitmq_version",
    "product_name",
    "product_version",
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "queues",
    "exchanges",
    "bindings",
]
OF_VHOST = ["rabbit_version", "parameters", "policies", "queues", "exchanges", "bindings"]
QUEUE = {"name": "q", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}}
EXCHANGE = {
    "name": "e",
    "type": "topic",
    "durable": True,
    "auto_delete": False,
    "internal": False,
    "arguments": {},
}
BINDING = {
    "source": "e",
    "destination": "q",
    "destination_type": "queue",
    "routing_key": "a.#",
    "arguments": {},
}
POLICY = {"name": "p", "pattern": "^a", "apply-to": "queues", "definition": {"expires": 5}, "priority": 2}


@pytest.fixture
def vhost(make_vhost: Callable[[], str]) -> str:
    return make_vhost()


@pytest.fixture
def user(api: HttpApi, name: Callable[[str], str]) -> Iterator[str]:
    """A name for a user, who goes with the test."""
    chosen = name("user")
    yield chosen
    api.delete(path("users", chosen))


def in_order(document: dict[str, Any]) -> dict[str, Any]:
    """With its lists sorted: their order is nobody's promise."""
    return {
        section: sorted(found, key=lambda each: json.dumps(each, sort_keys=True))
        if isinstance(found, list)
        else found
        for section, found in document.items()
    }


# --- out ---


def test_what_is_exported(api: HttpApi, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q", {"durable": True, "arguments": {"x-max-length": 5}})
    api.put(f"/queues/{vhost}/amq.q", {"durable": True})
    api.put(f"/exchanges/{vhost}/e", {"type": "topic", "durable": True})
    api.post(f"/bindings/{vhost}/e/e/q/q", {"routing_key": "a.#"})
    api.put(f"/policies/{vhost}/p", {key: POLICY[key] for key in POLICY if key != "name"})
    api.put(f"/vhost-limits/{vhost}/max-queues", {"value": 50})
    policy = {"vhost": vhost, **POLICY}
    limits = {"value": {"max-queues": 50}, "vhost": vhost, "component": "vhost-limits", "name": "limits"}
    one = api.get(f"/definitions/{vhost}")
    assert one.status == 200
    assert list(one.json) == OF_VHOST
    assert one.json["queues"] == [QUEUE]
    assert one.json["exchanges"] == [EXCHANGE]
    assert one.json["bindings"] == [BINDING]
    assert one.json["policies"] == [policy]
    assert one.json["parameters"] == [limits]
    whole = api.get("/definitions").json
    assert list(whole) == WHOLE
    assert {"vhost": vhost, **QUEUE} in whole["queues"]
    assert {"vhost": vhost, **EXCHANGE} in whole["exchanges"]
    assert {"vhost": vhost, **BINDING} in whole["bindings"]
    assert policy in whole["policies"]
    assert limits in whole["parameters"]
    assert {"name": vhost} in whole["vhosts"]
    permission = {"user": "guest", "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
    assert permission in whole["permissions"]
    assert api.get("/all-configuration").status == 200


def test_exclusive_queues_stay_out(api: HttpApi, vhost: str, connect: Callable[..., Any]) -> None:
    channel = connect(vhost=vhost).channel()
    channel.declare("mine", exclusive=True)
    channel.declare("ours")
    found = api.get(f"/definitions/{vhost}").json
    assert [queue["name"] for queue in found["queues"]] == ["ours"]


def test_download(api: HttpApi) -> None:
    answer = api.get("/definitions?download=file.json")
    assert answer.headers["content-disposition"] == "attachment; filename=file.json"
    pair = base64.b64encode(b"guest:guest").decode()
    assert api.get(f"/definitions?auth={pair}", user="").status == 200
    wrong = base64.b64encode(b"guest:wrong").decode()
    assert api.get(f"/definitions?auth={wrong}", user="").status == 401
    odd = api.get("/definitions?download=a%22%0d%0ax-odd:1;b.json")
    assert odd.status == 200
    assert odd.headers["x-odd"] is None


def test_a_vhost_that_is_missing(api: HttpApi, name: Callable[[str], str]) -> None:
    bad_request(api.get(path("definitions", name("nov"))), "vhost_not_found")
    answer = api.post(path("definitions", name("nov")), {})
    assert (answer.status, answer.json) == (404, {"error": "not_found", "reason": "vhost_not_found"})


# --- in ---


def document(vhost: str) -> dict[str, Any]:
    return {
        "vhosts": [{"name": vhost, "metadata": {"description": "d", "tags": ["t"]}}],
        "queues": [{"vhost": vhost, **QUEUE}, {"vhost": vhost, **QUEUE, "name": "amq.gen-x"}],
        "exchanges": [{"vhost": vhost, **EXCHANGE}, {"vhost": vhost, **EXCHANGE, "name": "amq.topic"}],
        "bindings": [{"vhost": vhost, **BINDING}, {"vhost": vhost, **BINDING, "source": "nope"}],
        "policies": [{"vhost": vhost, **POLICY}],
        "unknown": 5,
    }


def test_everything(api: HttpApi, vhost: str) -> None:
    answer = api.post("/definitions", document(vhost))
    assert (answer.status, answer.text) == (204, "")
    found = api.get(f"/definitions/{vhost}").json
    assert found["queues"] == [QUEUE]
    assert found["exchanges"] == [EXCHANGE]
    assert found["bindings"] == [BINDING]
    assert found["policies"] == [{"vhost": vhost, **POLICY}]
    described = api.get(f"/vhosts/{vhost}").json
    assert (described["description"], described["tags"]) == ("d", ["t"])
    assert api.post("/definitions", document(vhost)).status == 204
    assert in_order(api.get(f"/definitions/{vhost}").json) == in_order(found)


def test_what_is_there_stays(api: HttpApi, vhost: str) -> None:
    api.post("/definitions", document(vhost))
    other = {**QUEUE, "durable": False, "arguments": {}}
    assert api.post("/definitions", {"queues": [{"vhost": vhost, **other}]}).status == 204
    assert api.get(f"/definitions/{vhost}").json["queues"] == [QUEUE]
    assert api.post("/definitions", {"vhosts": [{"name": vhost}]}).status == 204
    assert api.get(f"/vhosts/{vhost}").json["description"] == ""


def test_one_vhost(api: HttpApi, vhost: str, user: str) -> None:
    """Whatever vhost is written, it is that of the path; what belongs to no vhost is left out."""
    given = {**document("elsewhere"), "users": [{"name": user, "tags": ""}]}
    assert api.post(f"/definitions/{vhost}", given).status == 204
    found = api.get(f"/definitions/{vhost}").json
    assert (found["queues"], found["bindings"]) == ([QUEUE], [BINDING])
    assert found["policies"] == [{"vhost": vhost, **POLICY}]
    assert api.get(f"/users/{user}").status == 404


@pytest.mark.parametrize("algorithm", ["md5", "sha256", "sha512"])
def test_users(api: HttpApi, user: str, algorithm: str) -> None:
    salt = b"salt"
    digest = hashlib.new(algorithm, salt + b"secret").digest()
    item = {
        "name": user,
        "password_hash": base64.b64encode(salt + digest).decode(),
        "hashing_algorithm": f"rabbit_password_hashing_{algorithm}",
        "tags": "management,x",
        "limits": {"max-connections": 3},
    }
    assert api.post("/definitions", {"users": [item]}).status == 204
    assert api.get("/whoami", user=user, password="secret").json["tags"] == ["management", "x"]
    expected = {**item, "tags": ["management", "x"]}
    assert api.get(f"/users/{user}").json == expected
    assert expected in api.get("/definitions").json["users"]


def test_algorithms_of_old_versions(api: HttpApi, user: str) -> None:
    item = {"name": user, "password_hash": "YWJj", "tags": ""}
    for version, algorithm in (("3.5.8", "md5"), ("3.6.0", "sha256")):
        assert api.post("/definitions", {"rabbit_version": version, "users": [item]}).status == 204
        found = api.get(f"/users/{user}").json["hashing_algorithm"]
        assert found == f"rabbit_password_hashing_{algorithm}"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (b"[]", "failed_to_parse_json"),
        (b"{", "failed_to_parse_json"),
        (b'"x"', "failed_to_parse_json"),
        ({"users": [{"name": "refused"}]}, "tags_not_present"),
        ({"users": [{"name": "refused", "tags": "", "password_hash": "#"}]}, ["not_base64", "#"]),
        ({"queues": [{"vhost": "no-such-vhost", **QUEUE}]}, ["no_such_vhost", "no-such-vhost"]),
        (
            {
                "permissions": [
                    {"user": "no-such-user", "vhost": "/", "configure": "", "write": "", "read": ""}
                ]
            },
            ["no_such_user", "no-such-user"],
        ),
        (
            {"policies": [{"vhost": "/", **POLICY, "definition": {}}]},
            "Validation failed\n\nno policy provided\n (//p)",
        ),
        (
            {"parameters": [{"vhost": "/", "component": "nope", "name": "n", "value": 1}]},
            "Validation failed\n\ncomponent nope not found\n (//nope/n)",
        ),
    ],
)
def test_refused(api: HttpApi, given: Any, reason: object) -> None:
    bad_request(api.post("/definitions", given), reason)


@pytest.mark.parametrize(
    "item",
    [
        {"name": "q"},
        {**QUEUE, "durable": "yes"},
        {**QUEUE, "arguments": {"x-max-length": "x"}},
        {**QUEUE, "arguments": {"x-queue-type": "nope"}},
    ],
)
def test_refused_queues(api: HttpApi, vhost: str, item: dict[str, Any]) -> None:
    """RabbitMQ's reason is the name of a function, or a text by the codes of its characters."""
    assert api.post("/definitions", {"queues": [{"vhost": vhost, **item}]}).status == 400
    assert api.get(f"/queues/{vhost}").json == []


def test_nothing_is_an_empty_document(api: HttpApi) -> None:
    assert api.post("/definitions", b"").status == 204
    assert api.post("/definitions", {}).status == 204


def test_limits_hold_for_what_comes(api: HttpApi, vhost: str) -> None:
    api.put(f"/vhost-limits/{vhost}/max-queues", {"value": 1})
    two = [QUEUE, {**QUEUE, "name": "r"}]
    text = (
        f'Adding 2 queue(s) to virtual host "{vhost}" would exceed the limit of 1 queue(s).\n\n'
        "This virtual host currently has 0 queue(s) defined.\n\nImport aborted!"
    )
    bad_request(api.post(f"/definitions/{vhost}", {"queues": two}), text)
    assert api.post(f"/definitions/{vhost}", {"queues": two[:1]}).status == 204
    api.delete(f"/vhost-limits/{vhost}/max-queues")
    limits = {"component": "vhost-limits", "name": "limits", "vhost": vhost, "value": {"max-queues": 1}}
    assert api.post(f"/definitions/{vhost}", {"queues": two, "parameters": [limits]}).status == 204
    assert len(api.get(f"/queues/{vhost}").json) == 2


# --- the way that browsers take ---


def form(fields: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    parts = "".join(
        f'--XX\r\ncontent-disposition: form-data; name="{name}"; filename="d.json"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    return f"{parts}--XX--\r\n".encode(), {"content-type": "multipart/form-data; boundary=XX"}


def test_a_form(api: HttpApi, vhost: str) -> None:
    content, headers = form({"file": json.dumps(document(vhost))})
    answer = api.post("/definitions", content, headers=headers)
    assert (answer.status, answer.text) == (204, "")
    assert len(api.get(f"/queues/{vhost}").json) == 1


def test_a_form_that_leads_back(api: HttpApi, vhost: str) -> None:
    content, headers = form({"file": json.dumps({"queues": [QUEUE]}), "redirect": "../#/import-succeeded"})
    answer = api.post(f"/definitions/{vhost}", content, headers=headers)
    assert (answer.status, answer.headers["location"]) == (303, "../#/import-succeeded")
    assert len(api.get(f"/queues/{vhost}").json) == 1


@pytest.mark.parametrize("fields", [{"nofile": "{}"}, {"file": "nojson"}, {"file": "[]"}])
def test_forms_without_a_document(api: HttpApi, fields: dict[str, str]) -> None:
    content, headers = form(fields)
    bad_request(api.post("/definitions", content, headers=headers), "failed_to_parse_json")


def test_types_of_bodies(api: HttpApi) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = api.post("/definitions", b"{}", headers={"content-type": kind})
        assert (answer.status, answer.text) == (415, "")
    broken = api.post("/definitions", b"garbage", headers={"content-type": "multipart/form-data; boundary=X"})
    assert broken.status == 400


def test_who_may(api: HttpApi, user: str) -> None:
    for tags in ("management", "policymaker", "monitoring"):
        api.put(f"/users/{user}", {"password": user, "tags": tags})
        for answer in (
            api.get("/definitions", user=user),
            api.get("/definitions/%2F", user=user),
            api.post("/definitions", {}, user=user),
        ):
            assert (answer.status, answer.json["reason"]) == (401, "Not administrator user")
