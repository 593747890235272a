"""Feature flags over HTTP (management §1.10)."""

from node.management.resources.feature_flags import ROUTES
from tests.kit.fake_site import Caller

JSON = {"content-type": "application/json"}


def test_flags() -> None:
    caller = Caller(routes=ROUTES)
    found = {flag["name"]: flag for flag in caller.ask("GET", "/api/feature-flags").value}
    assert len(found) == 9
    assert found["quorum_queue"].keys() == {"name", "desc", "doc_url", "state", "stability", "provided_by"}
    assert {name for name, flag in found.items() if flag["state"] != "enabled"} == {"stream_queue"}


def test_enabling_one() -> None:
    caller = Caller(routes=ROUTES)
    assert caller.ask("PUT", "/api/feature-flags/quorum_queue/enable", {}, headers=JSON).status == 204
    for name in ("nope", "stream_queue"):
        answer = caller.ask("PUT", f"/api/feature-flags/{name}/enable", {}, headers=JSON)
        assert (answer.status, answer.value["reason"]) == (400, "unsupported")
    assert caller.ask("PUT", "/api/feature-flags/quorum_queue/enable").status == 415
