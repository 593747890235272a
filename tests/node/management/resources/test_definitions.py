"""Definitions over HTTP: forms, and where they may lead; the rest: tests/conformance/http."""

import json
from typing import Any

import pytest

from node.management.reply import ApiError
from node.management.resources.definitions import form_fields
from tests.kit.fake_site import Caller

TYPE = "multipart/form-data; boundary=XX"
JSON = {"content-type": "application/json"}


def form(**fields: str) -> bytes:
    parts = "".join(
        f'--XX\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    return f"preamble\r\n{parts}--XX--\r\nepilogue".encode()


def test_fields_of_a_form() -> None:
    assert form_fields(TYPE, form(file="{}", redirect="a\r\nb")) == {"file": b"{}", "redirect": b"a\r\nb"}
    assert form_fields('multipart/form-data; boundary="XX"', form(a="x--XX")) == {"a": b"x--XX"}
    assert form_fields(TYPE, b"--XX--") == {}
    data = (
        b'--XX\r\nX-Other: 1\r\ncontent-disposition: form-data; filename="x"; name=file\r\n\r\n\xff\r\n--XX--'
    )
    assert form_fields(TYPE, data) == {"file": b"\xff"}


@pytest.mark.parametrize(
    ("content_type", "data"),
    [
        ("multipart/form-data", form(file="{}")),
        ("multipart/form-data; boundary=", form(file="{}")),
        (TYPE, b""),
        (TYPE, b"garbage"),
        (TYPE, form(file="{}").replace(b"--XX--", b"")),
        (TYPE, form(**{f"f{number}": "" for number in range(100)})),
    ],
)
def test_broken_forms(content_type: str, data: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        form_fields(content_type, data)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("redirect", "status"),
    [
        ("../#/import-succeeded", 303),
        ("/", 303),
        ("", 204),
        ("https://elsewhere.example/", 204),
        ("//elsewhere.example/", 204),
        ("/\\elsewhere.example", 204),
        ("javascript:alert(1)", 204),
        ("/x\r\nset-cookie: a=b", 204),
        ("http://[", 204),
    ],
)
def test_a_form_leads_nowhere_else(redirect: str, status: int) -> None:
    data = form(file="{}", redirect=redirect)
    answer = Caller().ask("POST", "/api/definitions", data, headers={"content-type": TYPE})
    assert answer.status == status
    assert answer.headers.get("location") == (redirect if status == 303 else None)


def test_the_name_of_a_download() -> None:
    answer = Caller().ask("GET", "/api/definitions?download=a%22;b%0d%0a/../%C3%A9.json")
    assert answer.headers["content-disposition"] == "attachment; filename=a__b___..__.json"


QUEUE = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"queues": [{**QUEUE, "durable": 5}]}, "durable of a queue must be true or false"),
        ({"queues": [{"name": "q", "vhost": "/"}]}, "durable of a queue must be true or false"),
        ({"queues": [{**QUEUE, "arguments": {"x-queue-type": "stream"}}]}, "'rabbit_stream_queue'"),
        ({"queues": {}}, "queues must be a list of objects"),
        ({"vhosts": [{"name": 5}]}, "name of a virtual host must be a string"),
        ({"global_parameters": [{"name": "g", "value": json.loads("[" * 99 + "]" * 99)}]}, "nested too deep"),
    ],
)
def test_what_is_wrong_is_said(document: Any, text: str) -> None:
    """RabbitMQ says function_clause, or answers with 500."""
    caller = Caller()
    given = {"users": [{"name": "before", "tags": ""}], **document}
    answer = caller.ask("POST", "/api/definitions", given, headers=JSON)
    assert answer.status == 400
    assert text in answer.value["reason"]
    assert caller.ask("GET", "/api/users/before").status == 404


def test_a_user_of_the_document_can_be_who_imports() -> None:
    caller = Caller()
    document = {"users": [{"name": "guest", "password": "other", "tags": "administrator"}]}
    assert caller.ask("POST", "/api/definitions", document, headers=JSON).status == 204
    assert caller.ask("GET", "/api/definitions").status == 401


def test_what_is_not_supported_is_skipped_if_asked_for() -> None:
    caller = Caller()
    document = {
        "queues": [QUEUE, {**QUEUE, "name": "s", "arguments": {"x-queue-type": "stream"}}],
        "parameters": [{"vhost": "/", "component": "shovel", "name": "s", "value": {}}],
    }
    refused = caller.ask("POST", "/api/definitions", document, headers=JSON)
    assert refused.status == 400
    assert refused.value["reason"].startswith(
        "2 items cannot be taken; 2 of them use features that Fluffle lacks"
    )
    assert caller.ask("GET", "/api/queues/%2F/q").status == 404
    taken = caller.ask("POST", "/api/definitions?skip_unsupported=true", document, headers=JSON)
    assert (taken.status, len(taken.value["skipped"])) == (200, 2)
    assert caller.ask("GET", "/api/queues/%2F/q").status == 200
