"""Users of auth backends in the HTTP API: who is let in, what is shown, and what may be changed."""

import base64
from collections.abc import Callable

import pytest

from node.catalogue.access import LoginRefused
from node.catalogue.commands import DeclareQueue, PutVhost
from node.catalogue.records import User
from node.client.authority import BackendUser
from node.extension.auth_backend import Login, Question, ResourceAccess, VhostAccess
from tests.kit.fake_site import Caller
from tests.kit.live_site import live


class Rules:
    """An authority with a user `ada`, of the tag management, who may use the vhost `hers`, and there what begins so."""

    answers_s = 15.0

    def __init__(self) -> None:
        self.hosts: set[str] = set()

    def log_in(self, login: Login, on_done: Callable[[User | LoginRefused], None]) -> None:
        self.hosts.add(login.host)
        is_right = (login.user, login.password) == ("ada", b"secret")
        user = BackendUser("ada", "", "", ("management",), authoriser="rules")
        on_done(user if is_right else LoginRefused(f"user '{login.user}' - no"))

    def ask(self, user: BackendUser, question: Question, on_done: Callable[[bool], None]) -> None:
        match question:
            case VhostAccess():
                on_done(question.vhost == "hers")
            case ResourceAccess():
                on_done(question.name.startswith("hers") or question.name == "amq.default")
            case _:
                on_done(True)


@pytest.fixture
def caller() -> Caller:
    site, caller = live()
    site.world.submit(PutVhost("hers"))
    for number, vhost in enumerate(("/", "hers")):
        site.world.submit(DeclareQueue(vhost, f"hers-{number}", str(number) * 32))
    site.world.settle()
    site.broker.authority = Rules()
    return caller


def ada(password: str = "secret") -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"ada:{password}".encode()).decode()}


def test_a_user_of_a_backend_logs_in_by_it(caller: Caller) -> None:
    reply = caller.ask("GET", "/api/whoami", headers=ada(), peer="192.0.2.7")
    assert (reply.status, reply.value["name"], reply.value["tags"]) == (200, "ada", ["management"])
    assert caller.ask("GET", "/api/whoami", headers=ada("wrong"), peer="192.0.2.7").status == 401
    authority = caller.site.broker.authority
    assert isinstance(authority, Rules)
    assert authority.hosts == {"192.0.2.7"}


def test_guessing_on_is_refused_before_the_backend_is_asked(caller: Caller) -> None:
    statuses = [caller.ask("GET", "/api/whoami", headers=ada("wrong")).status for _ in range(12)]
    assert statuses[-1] == 429


def test_vhosts_are_shown_as_the_backend_says(caller: Caller) -> None:
    reply = caller.ask("GET", "/api/queues", headers=ada())
    assert [(row["vhost"], row["name"]) for row in reply.value] == [("hers", "hers-1")]
    assert caller.ask("GET", "/api/queues/%2F", headers=ada()).status == 401
    assert caller.ask("GET", "/api/queues/hers", headers=ada()).status == 200


def test_changes_are_allowed_as_the_backend_says(caller: Caller) -> None:
    new = {"durable": True}
    assert caller.ask("PUT", "/api/queues/hers/hers-new", new, headers=ada()).status == 201
    assert caller.ask("PUT", "/api/queues/hers/other", new, headers=ada()).status == 401
    assert caller.ask("PUT", "/api/queues/%2F/hers-new", new, headers=ada()).status == 401
    message = {"properties": {}, "routing_key": "hers-1", "payload": "m", "payload_encoding": "string"}
    reply = caller.ask("POST", "/api/exchanges/hers/amq.default/publish", message, headers=ada())
    assert reply.value == {"routed": True}
    assert caller.ask("PUT", "/api/users/eve", {"password": "x", "tags": ""}, headers=ada()).status == 401
