"""A client asks nodes in turn with its credentials, and sorts out their answers. No sockets: see tests/conformance."""

import base64
from pathlib import Path
from typing import Any

import pytest

from spark_ops.applying.asking import Answer, Silence
from spark_ops.applying.client import Client
from spark_ops.applying.credentials import Address, AddressError, address
from spark_ops.applying.observation import Observation
from spark_ops.applying.watching import observation, observe


def pair(found: Address) -> str:
    return base64.b64decode(found.authorization.removeprefix("Basic ")).decode()


def test_urls(tmp_path: Path) -> None:
    """As an operator writes them; what is shown has no password."""
    environment = {"SPARK_OPS_USER": "me", "SPARK_OPS_PASSWORD": "pass:word"}
    for url, shown in (
        ("host", "http://host:15672"),
        ("host:81", "http://host:81"),
        ("https://host/", "https://host:15671"),
        ("https://host/rabbit/api/", "https://host:15671/rabbit"),
        ("http://[::1]:80", "http://[::1]:80"),
    ):
        found = address(url, environment)
        assert found.shown == shown
        assert pair(found) == "me:pass:word"
    found = address("http://n%40me:s%2Fcret@host:1", environment)
    assert pair(found) == "n@me:s/cret"
    assert "cret" not in repr(found) + found.shown
    assert found.authorization not in repr(found)
    for wrong in ("ftp://host", "http://", "host:port", "http://host?x", "http://[::1", ""):
        with pytest.raises(AddressError):
            address(wrong, environment)
    with pytest.raises(AddressError) as error:
        address("ftp://me:secret@host", environment)
    assert "secret" not in str(error.value)


def test_a_file_of_credentials(tmp_path: Path) -> None:
    """A file like ~/.netrc must be closed to others, and what is wrong with it is told without what is in it."""
    path = tmp_path / "netrc"
    path.write_text("machine host login me password secret\n")
    environment = {"SPARK_OPS_NETRC": str(path)}
    path.chmod(0o644)
    with pytest.raises(AddressError, match="others may read it"):
        address("host", environment)
    path.chmod(0o600)
    assert pair(address("host:1", environment)) == "me:secret"
    assert pair(address("other", environment)) == "guest:guest"
    path.write_text("machine host login me passwort secret\n")
    with pytest.raises(AddressError) as error:
        address("host", environment)
    assert "secret" not in str(error.value)
    with pytest.raises(OSError, match="No such file"):
        address("host", {"SPARK_OPS_NETRC": str(tmp_path / "none")})


class Told(Client):
    """A client whose nodes answer what they are told to."""

    def __init__(self, *answers: Answer | Silence) -> None:
        super().__init__([address(f"n{number}", {"SPARK_OPS_USER": "x"}) for number in range(len(answers))])
        self.answers = {f"n{number}": answer for number, answer in enumerate(answers)}
        self.asked: list[str] = []

    def _ask(self, address: Address, method: str, path: str, body: Any) -> Answer | Silence:
        self.asked.append(address.host)
        return self.answers[address.host]


def test_who_does_not_answer_is_passed_over() -> None:
    """A node that does not answer is passed over, and the one that does is asked first from then on."""
    client = Told(Silence("gone"), Answer(503), Answer(409, {"reason": "stale"}))
    assert client.get("/x") == Answer(409, {"reason": "stale"})
    assert client.asked == ["n0", "n1", "n2"]
    client.get("/x")
    assert client.asked[3:] == ["n2"]
    client.answers["n2"] = Silence("gone too")
    client.answers["n0"] = Answer(200)
    assert client.get("/x") == Answer(200)
    assert client.asked[4:] == ["n2", "n0"]


def test_the_best_of_bad_answers() -> None:
    """An answer from a node is better than silence, even an error."""
    assert Told(Silence("a"), Silence("b")).get("/") == Silence("b")
    assert Told(Answer(503, {"reason": "r"}), Silence("b")).get("/") == Answer(503, {"reason": "r"})
    assert Told(Silence("a"), Answer(500)).get("/") == Answer(500)


def test_reasons_for_people() -> None:
    """Whatever the body is."""
    assert Answer(409, {"error": "stale", "reason": "why"}).reason == "why"
    assert Answer(409, {"error": "stale"}).reason == "stale"
    assert Answer(500, ["x"]).reason == "HTTP 500"
    assert Answer(200, None).field("x") is None


NODES = [
    {"name": "a", "running": True, "mem_alarm": True, "disk_free_alarm": False},
    {"name": "b", "running": True, "mem_alarm": False, "disk_free_alarm": True},
    {"name": "c", "running": False},
]
RINGS = [
    {"vhost": "/", "name": "none", "danger": 0, "lag": {}, "synchronised": []},
    {"vhost": "/", "name": "one", "danger": 1, "lag": {"b": 7777}, "synchronised": []},
    {"vhost": "/", "name": "two", "danger": 2, "lag": {"b": 9, "c": 12}, "synchronised": ["b", "c"]},
]


def test_what_is_seen() -> None:
    """An observation leaves out how far a copy is behind that is still being filled."""
    assert observation(NODES, RINGS) == Observation(
        frozenset({"a", "b"}),
        frozenset({"memory on a", "disk on b"}),
        frozenset({("/", "none"), ("/", "one")}),
        mirror_lag_ops=12,
    )
    assert observation([], []) == Observation(frozenset())


def test_a_look_takes_few_requests() -> None:
    """Pages are turned as long as there are queues without a synchronised mirror."""
    asked: list[str] = []

    class Pages(Told):
        def _ask(self, address: Address, method: str, path: str, body: Any) -> Answer | Silence:
            asked.append(path)
            if path.startswith("/nodes"):
                return Answer(200, NODES)
            if "rings" in path:
                rows = RINGS[:2] if "&page=1&" in path else RINGS[2:]
                return Answer(200, {"items": rows, "page_count": 9})
            return Answer(200, {"view_id": 12})

    seen = observe(Pages(Silence("")))
    assert isinstance(seen, Observation)
    assert seen.view_id == 12
    assert len(seen.unsafe) == 2
    assert seen.answer_ms is not None
    assert len(asked) == 4
    assert observe(Told(Silence("gone"))) == Silence("gone")
    assert observe(Told(Answer(401, {"reason": "no"}))) == Answer(401, {"reason": "no"})
