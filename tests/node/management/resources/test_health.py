"""Health checks (management §1.11) without sockets: what a live server can't easily be brought to."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from node.catalogue.mirrors.views import View, created, died
from node.catalogue.records import QueueRecord
from node.config.config import TlsOptions
from node.config.values import Address
from node.management.resources import health
from node.management.site import SiteNode
from tests.kit.fake_site import NODE, Caller
from tests.kit.monitor_site import MonitorSite


def ask(site: MonitorSite, path: str, **options: Any) -> tuple[int, Any]:
    reply = Caller(site).ask("GET", path, **options)
    return reply.status, reply.value


def failed(site: MonitorSite, path: str) -> Any:
    status, value = ask(site, path)
    assert (status, value["status"]) == (503, "failed")
    return value


def test_alarms_of_other_nodes_are_not_local() -> None:
    site = MonitorSite()
    site.alarms = [{"node": "other@h", "resource": "disk"}]
    assert failed(site, "/api/health/checks/alarms")["alarms"] == [
        {"node": "other@h", "resource": "disk space"}
    ]
    assert ask(site, "/api/health/checks/local-alarms") == (200, {"status": "ok"})
    site.alarms.append({"node": NODE, "resource": "memory"})
    assert failed(site, "/api/health/checks/local-alarms")["alarms"] == [{"node": NODE, "resource": "memory"}]


def test_a_disk_that_hangs_is_an_alarm_and_keeps_clients_away(monkeypatch: pytest.MonkeyPatch) -> None:
    site = MonitorSite()
    site.alarms = [{"node": NODE, "resource": "message_disk"}]
    assert failed(site, "/api/health/checks/local-alarms")["alarms"] == [
        {"node": NODE, "resource": "message disk"}
    ]
    site.is_serving = False
    status = site.status()
    monkeypatch.setattr(site, "status", lambda: {**status, "is_message_disk_stuck": True})
    assert failed(site, "/health/ready")["reason"] == "the disk of the messages does not answer"


@pytest.mark.parametrize("path", ["/health/ready", "/api/health/ready", "/health/ready/"])
def test_ready_without_a_user(path: str) -> None:
    """For balancers: 503 when paused, in maintenance mode, not started."""
    site = MonitorSite()
    nobody = {"authorization": ""}
    assert ask(site, path, headers=nobody) == (200, {"status": "ok"})
    site.is_serving, reasons = False, []
    for name in ("is_paused", "is_draining", "is_booting", ""):
        site.is_paused, site.is_draining, site.is_booting = (name == each for each in STATES)
        status, value = ask(site, path, headers=nobody)
        assert status == 503
        reasons.append(value["reason"])
    assert len(set(reasons)) == 4


STATES = ("is_paused", "is_draining", "is_booting")


def test_checks_without_a_broker() -> None:
    site = MonitorSite()
    site.node = None
    site.is_serving = False
    assert ask(site, "/api/health/checks/alarms")[0] == 503
    assert ask(site, "/health/ready", headers={"authorization": ""})[0] == 503


def test_the_connection_limit() -> None:
    site = MonitorSite()
    assert ask(site, "/api/health/checks/below-node-connection-limit")[1]["limit"] == "infinity"
    site.world.client()
    site.config = replace(site.config, amqp=replace(site.config.amqp, connection_max=1))
    assert failed(site, "/api/health/checks/below-node-connection-limit")["current"] == 1


def test_newer_checks_pass() -> None:
    site = MonitorSite()
    for each in ("reached-target-cluster-size", "is-in-service", "ready-to-serve-clients"):
        assert ask(site, f"/api/health/checks/{each}")[0] == 200


def test_an_old_check_of_a_node_that_is_down() -> None:
    site = MonitorSite()
    site.other_nodes = [SiteNode("down@h", "disc", False)]
    assert "down@h" in failed(site, "/api/healthchecks/node/down%40h")["reason"]


def test_damaged_files() -> None:
    """The first of them are named."""
    site = MonitorSite()
    path = "/api/health/checks/store-damage"
    assert ask(site, path) == (200, {"status": "ok"})
    found = [f"messages/{number}.rdq" for number in range(30)]
    site.broker.storage.damaged_files = lambda: found  # type: ignore[method-assign]
    answer = failed(site, path)
    assert (answer["count"], answer["files"]) == (30, found[:20])


# --- certificates ---


def certificate(directory: Path, ends: datetime) -> str:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime(2020, 1, 1))
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    path = directory / f"{ends:%Y%m%d}.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return str(path)


def test_certificates_that_end_soon(tmp_path: Path) -> None:
    """expired: node, protocol, interface, port, files and their ends."""
    soon = datetime.now(UTC) + timedelta(days=10)
    file = certificate(tmp_path, soon)
    site = MonitorSite()
    site.config = replace(
        site.config, tls_listeners=(Address("", 5671),), tls=TlsOptions(certificate_file=file)
    )
    assert ask(site, "/api/health/checks/certificate-expiration/1/weeks") == (200, {"status": "ok"})
    [expired] = failed(site, "/api/health/checks/certificate-expiration/1/months")["expired"]
    assert expired == {
        "node": NODE,
        "protocol": "amqp/ssl",
        "interface": "[::]",
        "port": 5671,
        "certfile": file,
        "cacertfile": "",
        "certfile_expires_on": f"{soon:%Y-%m-%d %H:%M:%S}",
        "cacertfile_expires_on": "",
    }


def test_certificates_that_cannot_be_read_count_as_expired(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    site = MonitorSite()
    management = replace(site.config.management, tls_listen=Address("127.0.0.1", 1))
    for file in (str(junk), str(tmp_path / "nowhere")):
        tls = TlsOptions(certificate_file=file)
        site.config = replace(site.config, management=replace(management, tls=tls))
        [expired] = failed(site, "/api/health/checks/certificate-expiration/1/days")["expired"]
        assert (expired["protocol"], expired["certfile_expires_on"]) == ("https", "")


@pytest.mark.parametrize("within", ["x", "1.5", "99999999999", ""])
def test_a_time_that_makes_no_sense(within: str) -> None:
    status, value = ask(MonitorSite(), f"/api/health/checks/certificate-expiration/{within or '%20'}/years")
    assert (status, value["error"]) == (400, "bad_request")


# --- queues ---


def record(view: View, queue_type: Any = "classic") -> QueueRecord:
    return QueueRecord("/", "q", "0" * 32, durable=True, type=queue_type, home="a", view=view)


def test_when_a_mirrored_queue_would_be_lost() -> None:
    three = created(0, [("a", 1), ("b", 2), ("c", 3)])
    alone = replace(three, synced=three.synced[:1])
    assert not health.has_no_other_copy(record(three), "a")
    assert health.has_no_other_copy(record(alone), "a")
    assert not health.has_no_other_copy(record(alone), "b"), "its master isn't here"
    assert health.has_no_other_copy(record(died(three, [2, 3], may_lose=False)), "a")


def test_when_a_quorum_queue_would_stop() -> None:
    three = created(0, [("a", 1), ("b", 2), ("c", 3)])
    two = died(three, [3], may_lose=False)
    assert not health.would_lose_majority(record(three, "quorum"), "a")
    assert health.would_lose_majority(record(two, "quorum"), "a")
    assert not health.would_lose_majority(record(two, "quorum"), "c"), "it isn't there any more"
    assert not health.would_lose_majority(record(created(0, [("a", 1)]), "quorum"), "a"), "it has no others"
