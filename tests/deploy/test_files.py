"""The files for plain machines and the pages for operators: programs accept the files, what the pages name exists."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import yaml

from node.cli.ctl.commands import COMMANDS
from node.mqtt.plugin import PLUGIN as MQTT
from node.mqtt.web_plugin import PLUGIN as WEB_MQTT
from node.stomp.plugin import PLUGIN as STOMP
from node.stomp.web_plugin import PLUGIN as WEB_STOMP
from tests.deploy.failover import DEPLOY, KEEPALIVED
from tests.kit.config import load
from tests.kit.haproxy import PROGRAM as HAPROXY
from tests.kit.patience import LIMIT_S, wait_until
from tests.kit.ports import free_ports
from tests.kit.server_process import ROOT

SYSTEMD_ANALYZE: Final = shutil.which("systemd-analyze")
PAGES: Final = ("deployment", "add_node", "upgrade", "backup", "sizing", "troubleshooting")
"""Configurations, commands and files of these pages of docs/ are looked up here."""
DOCUMENT: Final = "\n".join((ROOT / "docs" / f"{name}.md").read_text() for name in PAGES)
EXPOSURE_MAX: Final = 2.0
"""`systemd-analyze security` may say this much, from 0 to 10. It says 9.2 of a unit without any of our lines."""
PLACES: Final = {"FLUFFLE_N1": "10.0.0.1", "FLUFFLE_N2": "10.0.0.2", "FLUFFLE_N3": "10.0.0.3"}

needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
needs_systemd = pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd-analyze is not installed")
needs_keepalived = pytest.mark.skipif(KEEPALIVED is None, reason="keepalived is not installed")


def _said(*command: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@needs_haproxy
@pytest.mark.parametrize("own", [{}, {"FLUFFLE_BIND": "127.0.0.1", "FLUFFLE_STATS_BIND": "127.0.0.1"}])
def test_haproxy_takes_its_configuration(own: dict[str, str]) -> None:
    assert HAPROXY is not None
    code, said = _said(HAPROXY, "-c", "-f", str(DEPLOY / "haproxy.cfg"), environ=PLACES | own)
    assert code == 0, said
    assert "ALERT" not in said
    assert "WARNING" not in said


def test_haproxy_listens_on_each_port_that_is_published() -> None:
    """The ports of protocols that plug-ins bring are published, too; the statistics are for the machine alone."""
    compose = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())
    published = {each.rpartition(":")[2] for each in compose["services"]["haproxy"]["ports"]}
    text = (DEPLOY / "haproxy.cfg").read_text()
    bound = set(re.findall(r"^    bind \"\$\{FLUFFLE_(?:STATS_)?BIND-\}:(\d+)\"$", text, re.MULTILINE))
    assert published == bound
    protocols = {plugin.listeners[0].default_port for plugin in (MQTT, WEB_MQTT, STOMP, WEB_STOMP)}
    assert {str(port) for port in protocols} <= published
    exposed = re.findall(r"^EXPOSE (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert published - {"8404"} <= set(exposed[0].split())


@needs_haproxy
@pytest.mark.slow
def test_haproxy_leads_each_protocol_to_its_own_port(tmp_path: Path) -> None:
    """The shipped section asks a server at the port that the client came to, with the client's address in front."""
    assert HAPROXY is not None
    text = (DEPLOY / "haproxy.cfg").read_text()
    section = re.search(r"^listen protocols\n(?:    .*\n)+", text, re.MULTILINE)
    assert section is not None
    server, front = "127.0.0.2", "127.0.0.1"
    ports = free_ports(2)
    kept = [
        line for line in section[0].splitlines() if not re.search(r"bind|server n[23]|check|init-addr", line)
    ]
    binds = [f"    bind {front}:{port}" for port in ports]
    defaults = [
        "defaults",
        "    mode tcp",
        "    timeout connect 2s",
        "    timeout client 9s",
        "    timeout server 9s",
    ]
    config = tmp_path / "haproxy.cfg"
    config.write_text("\n".join([*defaults, kept[0], *binds, *kept[1:], ""]))
    process = subprocess.Popen([HAPROXY, "-db", "-f", str(config)], env={"FLUFFLE_N1": server})
    try:
        for port in ports:
            with socket.create_server((server, port)) as listener:
                listener.settimeout(LIMIT_S)
                client = wait_until(partial(connected, front, port), "HAProxy listens")
                client.sendall(b"hello")
                accepted, _ = listener.accept()
                found = b""
                while not found.endswith(b"hello"):
                    found += accepted.recv(100)
                accepted.close()
                client.close()
                assert found.startswith(b"\r\n\r\n\0\r\nQUIT\n"), "a PROXY header of version 2"
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def connected(host: str, port: int) -> socket.socket | None:
    """Return a connection; None: nobody listens there."""
    try:
        return socket.create_connection((host, port))
    except ConnectionRefusedError:
        return None


@needs_systemd
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """The program of the unit need not be installed here: another one stands for it."""
    unit = tmp_path / "fluffle.service"
    text = (DEPLOY / "systemd" / unit.name).read_text()
    assert "ExecStart=/opt/fluffle/bin/fluffle start\n" in text
    unit.write_text(text.replace("/opt/fluffle/bin/fluffle", "/bin/true"))
    assert SYSTEMD_ANALYZE is not None
    # What it does not know it names, and its exit code is 0 nevertheless.
    assert _said(SYSTEMD_ANALYZE, "verify", str(unit)) == (0, "")
    threshold = ("security", "--offline=yes", f"--threshold={EXPOSURE_MAX * 10:.0f}")
    code, said = _said(SYSTEMD_ANALYZE, *threshold, str(unit))
    assert code == 0, said


@needs_systemd
def test_systemd_takes_what_is_added_to_haproxy(tmp_path: Path) -> None:
    shipped = Path("/lib/systemd/system/haproxy.service")
    if not shipped.exists():
        pytest.skip("Debian's haproxy.service is not here")
    shutil.copy(shipped, tmp_path)
    shutil.copytree(DEPLOY / "systemd" / "haproxy.service.d", tmp_path / "haproxy.service.d")
    assert SYSTEMD_ANALYZE is not None
    assert _said(SYSTEMD_ANALYZE, "verify", str(tmp_path / shipped.name)) == (0, "")


@needs_keepalived
@pytest.mark.parametrize("number", [1, 2])
def test_keepalived_takes_its_configuration(tmp_path: Path, number: int) -> None:
    assert KEEPALIVED is not None
    config = tmp_path / "keepalived.conf"
    text = (DEPLOY / "keepalived" / f"keepalived-{number}.conf").read_text()
    links = [name for name in os.listdir("/sys/class/net") if name != "lo"]
    if not links:
        pytest.skip("there is no network interface but the loopback")
    for shipped, ours in (
        # Both have to exist here.
        ("$INTERFACE=eth0", f"$INTERFACE={links[0]}"),
        ("/etc/keepalived/check-haproxy", "/bin/true"),
        # 2.2.7 kills itself in a test of a configuration when it was another user for a moment.
        ("script_user nobody", "script_user root"),
    ):
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, ours)
    config.write_text(text)
    code, said = _said(KEEPALIVED, "--config-test", "--use-file", str(config))
    assert code == 0, said
    assert said == ""


def test_the_keepalived_files_differ_in_what_they_must() -> None:
    first, second = ((DEPLOY / "keepalived" / f"keepalived-{number}.conf").read_text() for number in (1, 2))
    pairs = zip(first.splitlines(), second.splitlines(), strict=True)
    differing = [one.split() for one, other in pairs if one != other]
    keys = [re.split(r"[ =]", " ".join(line))[0] for line in differing]
    assert keys == ["#", "$OWN", "$PEER", "router_id", "priority"]


@pytest.mark.slow
def test_a_node_runs_without_memory_that_is_written_and_executed(tmp_path: Path) -> None:
    """As under the unit's MemoryDenyWriteExecute; with all that a node imports, a cluster's listener too."""
    wrapper = (
        "import ctypes, os, sys\n"
        "prctl = ctypes.CDLL(None, use_errno=True).prctl\n"
        # PR_SET_NO_NEW_PRIVS, PR_SET_MDWE with PR_MDWE_REFUSE_EXEC_GAIN
        "prctl(38, 1, 0, 0, 0)\n"
        "sys.exit(99) if prctl(65, 1, 0, 0, 0) else os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    command = [sys.executable, "-c", wrapper, "-m", "node", "start", "--name", "t1@localhost"]
    command += ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--peer", "127.0.0.1:0"]
    command += ["--management", "127.0.0.1:0", "--telemetry", str(tmp_path / "telemetry")]
    config = tmp_path / "fluffle.conf"
    config.touch()
    with subprocess.Popen(
        [*command, "--config", str(config)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate()
        finally:
            process.kill()
    if process.returncode == 99:
        pytest.skip("this kernel has no PR_SET_MDWE (Linux 6.3)")
    assert "ready, amqp on" in line, log
    assert process.returncode == 0, log


# --- the pages for operators ---


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


def test_configurations_in_the_document_are_accepted() -> None:
    blocks = _blocks("ini")
    assert blocks
    for block in blocks:
        config = load(block, files={"/etc/fluffle/secret": "0123456789abcdef"})
        assert not config.unused


def test_commands_in_the_document_exist() -> None:
    """Each `ctl COMMAND` that is shown; the shell function `ctl` is the pages' own."""
    shown = set(
        re.findall(r"\b(?:ctl|diagnostics) (?:-\S+ |--data \S+ )*([a-z_]+)", "\n".join(_blocks("sh")))
    )
    shown |= {command for code in re.findall(r"`([^`]+)`", DOCUMENT) for command in _ctl_of(code)}
    assert shown
    assert shown <= set(COMMANDS), shown - set(COMMANDS)


def _ctl_of(code: str) -> list[str]:
    return re.findall(r"^(?:fluffle )?(?:ctl|diagnostics) ([a-z_]+)", code)


def test_files_in_the_document_exist() -> None:
    """All below deploy/ that they name."""
    named = set(re.findall(r"(?<!/)\bdeploy/[\w./-]*\w", DOCUMENT))
    assert named
    made = {"deploy/secrets", "deploy/secrets/cluster_secret", "deploy/secrets/password.conf"}
    assert [name for name in sorted(named - made) if not (ROOT / name).exists()] == []
