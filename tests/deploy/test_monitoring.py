"""Prometheus and Grafana of deploy/docker-compose.yml: what their files name is there, a real Prometheus takes them.

Images are not pulled here. With the program `prometheus` (Debian has it as a package) a node is scraped, and every
query of the dashboard and every alert is asked, as docs/monitoring.md says.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from node.management.prometheus import Scrape, Telemetry, Wanted
from node.management.resources.metrics import routes
from tests.kit.dashboard import queries
from tests.kit.fake_site import Caller
from tests.kit.idle_services import idle_services
from tests.kit.managed_fluffle import ManagedFluffle
from tests.kit.monitor_site import SUMS, busy_site
from tests.kit.network import HOST
from tests.kit.ports import free_ports
from tests.kit.server_process import ROOT

DEPLOY: Final = ROOT / "deploy"
PAGE: Final = (ROOT / "docs" / "monitoring.md").read_text()
PROMETHEUS: Final = shutil.which("prometheus")
LIMIT_S: Final = 60.0
"""A Prometheus may take this long to see a node; only a failing test waits so long."""

needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")


def _document(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text())


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """Return the services of the compose file."""
    found: dict[str, Any] = _document("docker-compose.yml")["services"]
    return found


def _mounts(service: dict[str, Any]) -> dict[str, str]:
    """Return which files of deploy/ are mounted at which paths of a container."""
    split = [volume.split(":") for volume in service["volumes"]]
    return {parts[1]: parts[0] for parts in split if parts[0].startswith("./")}


def test_they_start_when_asked_for_only(services: dict[str, Any]) -> None:
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["monitoring"]
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
        for source in _mounts(services[name]).values():
            assert (DEPLOY / source).exists(), source


def test_prometheus_asks_all_nodes_where_they_answer(services: dict[str, Any]) -> None:
    prometheus, document = services["prometheus"], _document("prometheus/prometheus.yml")
    mounts = _mounts(prometheus)
    assert "--config.file=/etc/prometheus/prometheus.yml" in prometheus["command"]
    assert mounts["/etc/prometheus/prometheus.yml"] == "./prometheus/prometheus.yml"
    assert [mounts[path] for path in document["rule_files"]] == ["./prometheus/alerts.yml"]
    exposed = re.search(r"^EXPOSE (.*)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert exposed is not None
    site = busy_site()
    caller = Caller(site, routes=routes(site.config.prometheus))
    for job in document["scrape_configs"]:
        [static] = job["static_configs"]
        hosts, ports = zip(*(target.split(":") for target in static["targets"]), strict=True)
        assert sorted(hosts) == ["n1", "n2", "n3"]
        assert all(set(prometheus["networks"]) & set(services[host]["networks"]) for host in hosts)
        assert set(ports) == {"15692"} <= set(exposed[1].split())
        path = job.get("metrics_path", "/metrics")
        query = urllib.parse.urlencode(job.get("params", {}), doseq=True)
        assert caller.ask("GET", f"{path}?{query}", headers={"authorization": ""}).status == 200


def test_alerts_ask_for_what_scrapes_have() -> None:
    document = _document("prometheus/alerts.yml")
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    site = busy_site()
    site.node.services = idle_services(site.broker)
    [_, queues] = _document("prometheus/prometheus.yml")["scrape_configs"]
    there = set()
    for wanted in (
        SUMS,
        Wanted("detailed", is_per_object=True, families=frozenset(queues["params"]["family"])),
    ):
        pieces = asyncio.run(Scrape(site, site.node, wanted).pieces(Telemetry()))
        there |= set(re.findall(r"^# TYPE (\S+)", b"".join(pieces).decode(), re.MULTILINE))
    asked = {name for rule in rules for name in re.findall(r"\b(?:fluffle|rabbitmq)_\w+", rule["expr"])}
    assert len(asked) > 8
    assert asked <= there, asked - there
    jobs = {job for rule in rules for job in re.findall(r'job="([^"]+)"', rule["expr"])}
    assert jobs <= {job["job_name"] for job in _document("prometheus/prometheus.yml")["scrape_configs"]}


def test_grafana_finds_prometheus_and_the_dashboard(services: dict[str, Any]) -> None:
    [source] = _document("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    url = urllib.parse.urlsplit(source["url"])
    assert url.hostname in services
    assert services[str(url.hostname)]["ports"][0].endswith(f":{url.port}")
    assert set(services["grafana"]["networks"]) == set(services[str(url.hostname)]["networks"])
    [provider] = _document("grafana/provisioning/dashboards/fluffle.yml")["providers"]
    mounts = _mounts(services["grafana"])
    assert mounts[f"{provider['options']['path']}/fluffle.json"] == "./grafana/fluffle.json"
    assert mounts["/etc/grafana/provisioning"] == "./grafana/provisioning"


def test_files_and_addresses_of_the_page_are_there(services: dict[str, Any]) -> None:
    """All of deploy/ that it names; and each port of it is one of a container's."""
    named = set(re.findall(r"(?<![/.\w])deploy/[\w./-]*\w", PAGE))
    assert {"deploy/prometheus/prometheus.yml", "deploy/prometheus/alerts.yml"} <= named
    made = {"deploy/secrets/grafana_password"}
    assert [name for name in sorted(named - made) if not (ROOT / name).exists()] == []
    ports = {
        port.rpartition(":")[2] for name in ("prometheus", "grafana") for port in services[name]["ports"]
    }
    assert set(re.findall(r"http://127\.0\.0\.1:(\d+)", PAGE)) == ports


# --- a real one ---


class Prometheus:
    """One that scrapes a node by the file of deploy/, every second."""

    def __init__(self, directory: Path, target: str) -> None:
        for name in ("prometheus.yml", "alerts.yml"):
            text = (DEPLOY / "prometheus" / name).read_text()
            text = re.sub(r"targets: \[.*\]", f'targets: ["{target}"]', text)
            text = re.sub(r"(scrape|evaluation)_interval: \w+", r"\1_interval: 1s", text)
            (directory / name).write_text(text.replace("/etc/prometheus", str(directory)))
        [port] = free_ports(1)
        self.url = f"http://{HOST}:{port}"
        self._log = (directory / "log").open("wb")
        assert PROMETHEUS is not None
        self.process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={HOST}:{port}",
            ],
            env={"PATH": os.environ["PATH"], "GOMAXPROCS": "1"},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def ask(self, path: str, **query: str) -> Any:
        """Return its answer under /api/v1. Raises: OSError while it starts."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def value(self, query: str) -> float | None:
        """The first value that a query gives; None: nothing, or it does not run yet."""
        try:
            found = self.ask("query", query=query)["result"]
        except OSError:
            return None
        return float(found[0]["value"][1]) if found else None

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that has seen a node."""
    node = ManagedFluffle({})
    try:
        process = Prometheus(
            tmp_path_factory.mktemp("prometheus"), node.prometheus_url.removeprefix("http://")
        )
        try:
            deadline = time.monotonic() + LIMIT_S
            while process.value("count(up == 1)") != 2:
                assert time.monotonic() < deadline, "Prometheus does not see the node"
                time.sleep(0.1)
            yield process
        finally:
            process.stop()
    finally:
        node.stop()


@pytest.mark.slow
@needs_prometheus
def test_prometheus_answers_each_query_of_the_dashboard(prometheus: Prometheus) -> None:
    """Each query has rows, also with both jobs on each node, which dashboards join by `instance`."""
    [cluster] = {
        row["metric"]["rabbitmq_cluster"]
        for row in prometheus.ask("query", query="rabbitmq_identity_info")["result"]
    }
    # Kinds of events have rows once they have happened. Rates need two samples.
    due = {query for query in queries() if "fluffle_mirroring_events_total" not in query}
    deadline = time.monotonic() + LIMIT_S
    while due:
        assert time.monotonic() < deadline, due
        for query in list(due):
            asked = query.replace("$cluster", cluster).replace("$__rate_interval", "10s")
            if prometheus.ask("query", query=asked)["result"]:
                due.remove(query)


@pytest.mark.slow
@needs_prometheus
def test_the_page_shows_how_to_see_that_it_works(prometheus: Prometheus) -> None:
    """The page's `curl` works as it stands there."""
    [line] = re.findall(r"^(curl .*)$", PAGE, re.MULTILINE)
    assert "http://127.0.0.1:9090/" in line
    done = subprocess.run(
        ["sh", "-ec", line.replace("http://127.0.0.1:9090", prometheus.url)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    values = [row["value"][1] for row in json.loads(done.stdout)["data"]["result"]]
    assert values == ["1", "1"]


@pytest.mark.slow
@needs_prometheus
def test_prometheus_takes_each_alert(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        if all(rule["health"] == "ok" for rule in rules):
            break
        assert time.monotonic() < deadline, rules
        time.sleep(0.1)
    assert {rule["name"]: rule["state"] for rule in rules} == {rule["name"]: "inactive" for rule in rules}
