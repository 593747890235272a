"""Callers, names, rebalancing, resets and stubs of plug-ins have no other file (management §1.10, §2.1, §2.5)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.http.steps import bad_request, is_missing, path, refused, succeeds
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq

Manager = Callable[..., HttpApi]

FORM = {"content-type": "application/x-www-form-urlencoded"}
NOT_ADMINISTRATOR = {"error": "not_authorised", "reason": "Not administrator user"}
NOT_MONITOR = {"error": "not_authorised", "reason": "Not monitor user"}
LOGIN_FAILED = {"error": "not_authorized", "reason": "Login failed"}


@pytest.fixture
def node(api: HttpApi) -> str:
    return str(succeeds(api.get("/overview"))["node"])


# --- who calls ---


def test_whoami(api: HttpApi, make_manager: Manager) -> None:
    assert succeeds(api.get("/whoami")) == {"name": "guest", "tags": ["administrator"]}
    assert succeeds(make_manager(None, tag="monitoring").get("/whoami"))["tags"] == ["monitoring"]


def test_auth_needs_no_user(api: HttpApi) -> None:
    """The keys of 3.10.8, as a live one has them."""
    found = succeeds(api.get("/auth", user=""))
    assert {key: found[key] for key in ("enable_uaa", "uaa_client_id", "uaa_location")} == {
        "enable_uaa": False,
        "uaa_client_id": "",
        "uaa_location": "",
    }


def test_login(api: HttpApi) -> None:
    """POST /login: 200 `"ok"` and a cookie."""
    answer = api.post("/login", "username=guest&password=guest", user="", headers=FORM)
    assert (answer.status, answer.json) == (200, "ok")
    assert answer.headers["set-cookie"].startswith("auth=Z3Vlc3Q6Z3Vlc3Q=; Version=1")


@pytest.mark.parametrize("form", ["username=guest&password=wrong", "username=guest", "", "a=b"])
def test_login_fails(api: HttpApi, form: str) -> None:
    answer = api.post("/login", form, user="", headers=FORM)
    assert (answer.status, answer.json) == (401, LOGIN_FAILED)
    assert "set-cookie" not in answer.headers


def test_login_with_another_type(api: HttpApi) -> None:
    answer = api.post(
        "/login", "username=guest&password=guest", user="", headers={"content-type": "text/plain"}
    )
    assert (answer.status, answer.text) == (415, "")


def test_extensions(api: HttpApi) -> None:
    assert {"javascript": "dispatcher.js"} in succeeds(api.get("/extensions"))


def test_auth_attempts(api: HttpApi, node: str, make_manager: Manager) -> None:
    """[{protocol, auth_attempts, auth_attempts_failed, auth_attempts_succeeded}]; DELETE forgets them."""

    def http() -> Any:
        rows = succeeds(api.get(path("auth", "attempts", node)))
        return next(each for each in rows if each["protocol"] == "http")

    api.get("/whoami", password="wrong")
    before = http()
    assert set(before) == {"protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded"}
    assert before["auth_attempts_failed"] >= 1
    assert before["auth_attempts"] == before["auth_attempts_failed"] + before["auth_attempts_succeeded"]
    assert succeeds(api.get(path("auth", "attempts", node, "source"))) == []
    for each in ("", "/source"):
        assert api.delete(path("auth", "attempts", node) + each).status == 204
    assert http()["auth_attempts"] < before["auth_attempts"]
    is_missing(api.get("/auth/attempts/nope"))
    refused(make_manager(None).get(path("auth", "attempts", node)), NOT_MONITOR)


# --- the cluster ---


@pytest.fixture
def old_name(api: HttpApi) -> Iterator[str]:
    name = succeeds(api.get("/cluster-name"))["name"]
    yield name
    api.put("/cluster-name", {"name": name})


def test_cluster_name(api: HttpApi, old_name: str) -> None:
    answer = api.put("/cluster-name", {"name": "a cluster"})
    assert (answer.status, answer.text) == (204, "")
    assert succeeds(api.get("/cluster-name")) == {"name": "a cluster"}
    assert succeeds(api.get("/overview"))["cluster_name"] == "a cluster"


def test_a_cluster_name_has_to_be_given(api: HttpApi, old_name: str) -> None:
    bad_request(api.put("/cluster-name", {}), "[{key_missing,name}]")
    if not is_rabbitmq():  # it crashes
        assert api.put("/cluster-name", {"name": 5}).status == 400


def test_only_administrators_name_a_cluster(make_manager: Manager, old_name: str) -> None:
    assert succeeds(make_manager(None).get("/cluster-name")) == {"name": old_name}
    refused(make_manager(None, tag="monitoring").put("/cluster-name", {"name": "x"}), NOT_ADMINISTRATOR)


def test_rebalance(api: HttpApi, make_manager: Manager) -> None:
    """204 at once; what came of it is in the log."""
    answer = api.post("/rebalance/queues")
    assert (answer.status, answer.text) == (204, "")
    refused(make_manager(None, tag="monitoring").post("/rebalance/queues"), NOT_ADMINISTRATOR)


def test_reset(api: HttpApi, node: str, make_manager: Manager) -> None:
    assert api.delete("/reset").status == 204
    assert api.delete(path("reset", node)).status == 204
    is_missing(api.delete("/reset/nope"))
    refused(make_manager(None, tag="monitoring").delete("/reset"), NOT_ADMINISTRATOR)


# --- plug-ins ---


@pytest.mark.parametrize(
    "list_path",
    [
        "/shovels",
        "/shovels/%2F",
        "/federation-links",
        "/federation-links/%2F",
        "/traces",
        "/traces/%2F",
        "/trace-files",
    ],
)
def test_lists_of_plug_ins_are_empty(api: HttpApi, list_path: str) -> None:
    """Monitors poll them; without the plug-in RabbitMQ has no such path."""
    if is_rabbitmq():
        assert api.get(list_path).status in (400, 404)
    else:
        assert succeeds(api.get(list_path)) == []


# --- feature flags ---

FLAGS = {
    "classic_mirrored_queue_version",
    "drop_unroutable_metric",
    "empty_basic_get_metric",
    "implicit_default_bindings",
    "maintenance_mode_status",
    "quorum_queue",
    "stream_queue",
    "user_limits",
    "virtual_host_metadata",
}


def test_feature_flags(api: HttpApi) -> None:
    """GET /feature-flags: {name, desc, doc_url, state, stability, provided_by}; the set of 3.10."""
    flags = api.get("/feature-flags").json
    assert [flag["name"] for flag in flags] == sorted(FLAGS)
    for flag in flags:
        assert flag.keys() == {"name", "desc", "doc_url", "state", "stability", "provided_by"}
        assert (flag["state"], flag["stability"]) == ("enabled", "stable") or flag["name"] == "stream_queue"


def test_feature_flags_are_enabled(api: HttpApi, make_manager: Callable[..., HttpApi]) -> None:
    """PUT /feature-flags/{n}/enable: 204 though it is; unknown → 400 "unsupported"; administrators."""
    assert api.put("/feature-flags/quorum_queue/enable", {}).status == 204
    answer = api.put("/feature-flags/nope/enable", {})
    assert (answer.status, answer.json) == (400, {"error": "bad_request", "reason": "unsupported"})
    assert api.get("/feature-flags/quorum_queue/enable").status == 405
    monitor = make_manager("/", tag="monitoring")
    assert monitor.put("/feature-flags/quorum_queue/enable", {}).status == 401


# --- pages beside the UI ---


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/api", "/api/index.html"),
        ("/api/", "/api/index.html"),
        ("/stats", "/api/index.html"),
        ("/doc/stats.html", "/api/index.html"),
        ("/cli", "/cli/index.html"),
        ("/mgmt", "/"),
        ("/mgmt/", "/"),
    ],
)
def test_pages_that_are_elsewhere(api: HttpApi, old: str, new: str) -> None:
    """301, for anybody; and there is something."""
    answer = api.get("/" + old, user="")
    assert (answer.status, answer.headers["location"], answer.text) == (301, new, "")
    found = api.get("/" + new, user="")
    assert (found.status, found.headers["content-type"].partition(";")[0]) == (200, "text/html")


def test_rabbitmqadmin_is_not_there(api: HttpApi) -> None:
    """`/cli/rabbitmqadmin` downloads RabbitMQ's tool; here a reason."""
    answer = api.get("//cli/rabbitmqadmin", user="")
    if is_rabbitmq():
        assert answer.text.startswith("#!")
    else:
        assert (answer.status, answer.json["error"]) == (404, "not_found")
        assert "rabbitmqadmin does not come with this broker" in answer.json["reason"]
