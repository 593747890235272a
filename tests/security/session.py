"""A day in the life of three nodes in which every secret that they are ever told is one that can be found again.

They log everything, everywhere. Operators and clients do what they do with passwords, right and wrong, over AMQP, HTTP,
the command line and configuration; what anybody was told, and what lies on disk, is kept for the tests to look at.
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cryptography import x509

from node.amqp import methods
from node.amqp.constants import FRAME_METHOD
from node.amqp.field_table import encode_table, longstr, table
from node.amqp.method_codec import encode_method
from node.amqp.properties import Properties
from node.io.control import request
from tests.kit.amqp_client import Connection, ConnectionEnded
from tests.kit.authority import Authority
from tests.kit.cluster_processes import START_S, until
from tests.kit.http_api import HttpApi, quote
from tests.kit.node_process import HOST, NodeProcess, start_command
from tests.kit.patience import patience
from tests.kit.ports import free_ports
from tests.kit.server_process import ROOT
from tests.security.canaries import canary

NAMES: Final = ("n1", "n2", "n3")
OPERATOR: Final = "operator"
EXCHANGES: Final = ("amq.rabbitmq.log", "amq.rabbitmq.event")
COMMAND_S: Final = 120.0
REFUSED_S: Final = 60.0
"""A refused login ends after three seconds; only a failing test waits so long."""

PASSWORDS: Final = {
    name: canary(name)
    for name in (
        "cluster secret",
        "default_pass",
        "key password",
        "password by command line",
        "changed password",
        "wrong password",
        "password by HTTP",
        "password of a refused user",
        "password in broken JSON",
        "password in definitions",
        "password in refused definitions",
        "wrong password over HTTP",
        "password in a broken header",
        "password in a form",
        "password in a broken response",
        "password of an unknown mechanism",
        "password in a broken frame",
        "updated secret",
    )
}
"""None of these may ever be read again: in no log, answer, event or file of data."""

CONTENTS: Final = {
    name: canary(name)
    for name in ("client property", "URI of a parameter", "URI of a global parameter", "body", "header")
}
"""The owner may ask for these again, and they are on disk. They may not be in a log, nor in what commands print."""


class WatchedNode(NodeProcess):
    """`fluffle start` of one member, under the watch of `watched_node`."""

    stop_s = COMMAND_S

    def __init__(self, session: "Session", name: str) -> None:
        directory = session.directory / name
        directory.mkdir()
        super().__init__(directory, f"{name}@localhost", environment=session.environment)
        self.port, self.peer_port, self.http_port, self.tls_port = free_ports(4)
        self.management_url = f"http://{HOST}:{self.http_port}"
        self.notes = directory / "notes"

    def launch(self, settings: Mapping[str, str] | None = None) -> None:
        """Start it, with a umask that forbids nobody anything."""
        if settings is not None:
            self.configure(settings)
        command = start_command(
            self.name,
            self.data,
            listen=f"{HOST}:{self.port}",
            peer=f"{HOST}:{self.peer_port}",
            management=f"{HOST}:{self.http_port}",
            config=self.config_path,
            program=("-m", "tests.security.watched_node", str(self.notes), "start"),
        )
        self._spawn([*command, "--telemetry", str(self.directory / "telemetry")], self.environment, umask=0)

    def is_ready(self) -> bool:
        """Whether it serves, and sees the others do so."""
        assert self.exit_code is None, self.log_text()[-4000:]
        status = request(str(self.data), "cluster_status", {}, timeout_s=10)
        return len(status["running_nodes"]) == len(NAMES)

    def proc(self, name: str) -> bytes:
        """A file of /proc/PID."""
        return Path(f"/proc/{self.pid}/{name}").read_bytes()


class Session:
    """See the module. `run`, then look at what is left in `directory`, then `close`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(directory)}
        self.nodes = [WatchedNode(self, name) for name in NAMES]
        self.printed: dict[str, str] = {}
        """The key is what was asked, the value what commands printed or HTTP answered."""
        self.told: dict[str, str] = {}
        """Messages of the exchanges of the log and of events, by the exchange."""
        self.arguments: dict[str, bytes] = {}
        """Command lines of the nodes, as everybody on the machine sees them."""
        self.exit_codes: list[int] = []

    def run(self) -> None:
        """All of it."""
        self._start()
        first = self.nodes[0]
        self.arguments = {node.name: node.proc("cmdline") for node in self.nodes}
        listener = Connection(first, OPERATOR, PASSWORDS["default_pass"])
        channel = listener.channel(1)
        queues = {exchange: channel.declare(f"copy of {exchange}") for exchange in EXCHANGES}
        for exchange, queue in queues.items():
            channel.call(methods.QueueBind, queue=queue, exchange=exchange, routing_key="#")
        self._users_by_command()
        self._users_over_http()
        self._definitions()
        self._amqp_logins()
        self._contents()
        self._other_questions()
        for exchange, queue in queues.items():
            texts = []
            while (content := channel.get(queue)) is not None:
                texts.append(f"{content.method.routing_key} {content.headers} {content.body!r}")
            self.told[exchange] = "\n".join(texts)
        listener.close()
        self.exit_codes = [node.stop() for node in self.nodes]

    def close(self) -> None:
        """Kill what is left."""
        for node in self.nodes:
            node.kill()

    def logs(self) -> list[Path]:
        """Whatever is a log: what was printed, files of log lines, requests over HTTP."""
        return [
            path for node in self.nodes for path in (node.log_path, *(node.directory / "logs").rglob("*"))
        ]

    def kept(self) -> list[Path]:
        """The nodes' data, and their telemetry."""
        return [
            path
            for node in self.nodes
            for folder in (node.data, node.directory / "telemetry")
            for path in folder.rglob("*")
        ]

    # --- the start ---

    def _start(self) -> None:
        secret = self.directory / "secret"
        secret.touch(0o600)
        secret.write_text(PASSWORDS["cluster secret"])
        authority = Authority(self.directory)
        identity = authority.issue(
            [("CN", "n1")], [x509.DNSName("localhost")], password=PASSWORDS["key password"]
        )
        for node in self.nodes:
            logs = node.directory / "logs"
            settings = {
                "default_user": OPERATOR,
                "default_pass": PASSWORDS["default_pass"],
                "log.console": "true",
                "log.console.level": "debug",
                "log.console.formatter": "json",
                "log.file": str(logs / "node.log"),
                "log.file.level": "debug",
                "log.exchange": "true",
                "log.exchange.level": "debug",
                "management.http_log_dir": str(logs / "http"),
                "cluster_formation.peer_discovery_backend": "classic_config",
            }
            logs.mkdir()
            for number, each in enumerate(self.nodes, 1):
                settings[f"cluster_formation.classic_config.nodes.{number}"] = f"{each.name}:{each.peer_port}"
            if node is self.nodes[0]:
                settings |= {
                    "listeners.ssl.1": f"{HOST}:{node.tls_port}",
                    "ssl_options.cacertfile": authority.ca_file,
                    "ssl_options.certfile": identity.certificate_file,
                    "ssl_options.keyfile": identity.key_file,
                    "ssl_options.password": PASSWORDS["key password"],
                }
            plugins = "rabbitmq_management,rabbitmq_prometheus,rabbitmq_event_exchange"
            node.environment["RABBITMQ_ENABLED_PLUGINS"] = plugins
            if node is self.nodes[-1]:
                node.environment["FLUFFLE_CLUSTER_SECRET"] = PASSWORDS["cluster secret"]
            else:
                settings["cluster.secret_file"] = str(secret)
            node.launch(settings)
        for node in self.nodes:
            until(node.is_ready, f"{node.name} serves", START_S * patience())

    # --- what operators do ---

    def ctl(self, *words: str, typed: str = "", node: int = 0) -> int:
        """Run `fluffle ctl` and keep what it prints.   typed: to its standard input.   Returns: the exit code."""
        name = self.nodes[node].name
        command = ["node", "ctl", "--data", str(self.nodes[node].data), *words]
        return self._command(f"ctl {words} of {name} (given {len(typed)})", command, typed)

    def ask(self, operation: str, node: int = 0, **arguments: object) -> None:
        """Ask as `fluffle ctl` would, without the time that it takes to start; keep the answer."""
        answer = request(str(self.nodes[node].data), operation, arguments, timeout_s=COMMAND_S)
        self.printed[f"{operation} of {self.nodes[node].name}"] = json.dumps(answer)

    def _command(self, what: str, module: list[str], typed: str = "") -> int:
        done = subprocess.run(
            [sys.executable, "-m", *module],
            cwd=ROOT,
            env=self.environment,
            input=typed,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        self.printed[what] = done.stdout + done.stderr
        return done.returncode

    def _users_by_command(self) -> None:
        first, second = PASSWORDS["password by command line"], PASSWORDS["changed password"]
        assert self.ctl("add_user", "typed", typed=f"{first}\n") == 0
        assert self.ctl("add_user", "typed", first, node=1) != 0, "it is there already"
        assert self.ctl("change_password", "typed", typed=f"{second}\n") == 0
        assert self.ctl("authenticate_user", "typed", typed=f"{second}\n", node=2) == 0
        wrong = PASSWORDS["wrong password"]
        assert self.ctl("authenticate_user", "typed", typed=f"{wrong}\n") != 0
        assert self.ctl("set_permissions", "typed", ".*", ".*", ".*") == 0
        assert self.ctl("list_users") == 0

    def _users_over_http(self) -> None:
        operator = HttpApi(self.nodes[1], OPERATOR, PASSWORDS["default_pass"])
        user = {"password": PASSWORDS["password by HTTP"], "tags": "management"}
        assert operator.put("/users/web", user).status == 201
        refused = {"password": PASSWORDS["password of a refused user"], "tags": 5}
        broken = '{"password": "' + PASSWORDS["password in broken JSON"] + '", "tags": '
        as_web = operator.as_user("web", PASSWORDS["password by HTTP"])
        wrong = PASSWORDS["wrong password over HTTP"]
        in_header = PASSWORDS["password in a broken header"]
        form = f"username=web&password={PASSWORDS['password in a form']}"
        answers = {
            "a refused user": operator.put("/users/refused", refused),
            "broken JSON": operator.put("/users/broken", broken),
            "who am I": as_web.get("/whoami"),
            "a user": operator.get("/users/web"),
            "a wrong password": operator.get("/overview", user=OPERATOR, password=wrong),
            "another scheme": operator.get("/overview", headers={"authorization": f"Bearer {in_header}"}),
            "no base64": operator.get(
                "/overview", headers={"authorization": f"Basic {in_header}:{in_header}"}
            ),
            "a wrong login": operator.post(
                "/login", form, headers={"content-type": "application/x-www-form-urlencoded"}
            ),
        }
        assert [each.status for each in answers.values()] == [400, 400, 200, 200, 401, 401, 401, 401]
        self.printed |= {f"HTTP {what}": f"{answer.headers}{answer.text}" for what, answer in answers.items()}

    def _definitions(self) -> None:
        """In and out, and as a browser downloads them: with the credentials in the address."""
        operator = HttpApi(self.nodes[2], OPERATOR, PASSWORDS["default_pass"])
        user = {"name": "imported", "password": PASSWORDS["password in definitions"], "tags": ""}
        nameless = {"password": PASSWORDS["password in refused definitions"], "tags": ""}
        pair = base64.b64encode(f"{OPERATOR}:{PASSWORDS['default_pass']}".encode()).decode()
        answers = [
            operator.post("/definitions", {"users": [user]}),
            operator.post("/definitions", {"users": [nameless]}),
            operator.get("/definitions"),
            operator.get(f"/definitions?auth={quote(pair)}", user=""),
        ]
        assert [each.status for each in answers] == [204, 400, 200, 200]
        for number, answer in enumerate(answers):
            self.printed[f"HTTP definitions {number}"] = answer.text
        text = json.dumps({"users": [nameless]})
        assert self.ctl("import_definitions", typed=text) != 0
        assert self.ctl("import_definitions", typed=text[:-5]) != 0
        assert self.ctl("export_definitions", "-") == 0

    # --- what clients do ---

    def _amqp_logins(self) -> None:
        """Right and wrong ones by each mechanism, and responses that make no sense."""
        node, right = self.nodes[0], PASSWORDS["changed password"]
        properties = {
            "password": longstr(CONTENTS["client property"]),
            "capabilities": table({"token": longstr(CONTENTS["client property"])}),
        }
        Connection(node, "typed", right, client_properties=properties).close()
        Connection(self.nodes[1], "typed", right).close()
        amqplain = Connection(node, open=False)
        amqplain.start()
        amqplain.send_start_ok("AMQPLAIN", _amqplain("typed", right))
        amqplain.tune()
        amqplain.open_vhost()
        amqplain.send(
            methods.ConnectionUpdateSecret, new_secret=PASSWORDS["updated secret"].encode(), reason="rotation"
        )
        amqplain.expect(methods.ConnectionUpdateSecretOk)
        amqplain.close()
        wrong, broken = PASSWORDS["wrong password"], PASSWORDS["password in a broken response"]
        refused = []
        for mechanism, response in (
            ("PLAIN", f"\0typed\0{wrong}".encode()),
            ("PLAIN", f"typed\0typed\0{broken}\0{broken}".encode()),
            ("PLAIN", broken.encode()),
            ("AMQPLAIN", _amqplain("typed", wrong)),
            ("AMQPLAIN", broken.encode()),
            ("SCRAM-SHA-256", PASSWORDS["password of an unknown mechanism"].encode()),
        ):
            refused.append(Connection(node, open=False))
            refused[-1].start()
            refused[-1].send_start_ok(mechanism, response)
        refused += self._broken_frames()
        for connection in refused:
            with contextlib.suppress(ConnectionEnded):
                connection.expect_end(REFUSED_S, may_close=True)

    def _broken_frames(self) -> list[Connection]:
        """A start-ok that is cut short, and one on a channel that is not open."""
        secret = PASSWORDS["password in a broken frame"]
        found = []
        method = methods.ConnectionStartOk(mechanism="PLAIN", response=f"\0typed\0{secret}".encode())
        payload = encode_method(method)
        for channel, sent in ((0, payload[:-3]), (7, payload)):
            found.append(Connection(self.nodes[0], open=False))
            found[-1].start()
            found[-1].send_frame(FRAME_METHOD, channel, sent)
        return found

    def _contents(self) -> None:
        """Put secrets where clients have theirs: bodies and headers, parameters with URIs."""
        client = Connection(self.nodes[0], "typed", PASSWORDS["changed password"])
        channel = client.channel(1)
        queue = channel.declare("kept", durable=True)
        headers = Properties(headers={"token": longstr(CONTENTS["header"])}, delivery_mode=2)
        self.ask("trace_on", vhost="/")
        for key in (queue, "nowhere"):
            client.publish(1, "", key, CONTENTS["body"].encode(), headers, mandatory=True)
        client.expect_content(methods.BasicReturn, 1)
        self.ask("trace_off", vhost="/")
        client.close()
        uri = f"amqp://typed:{CONTENTS['URI of a parameter']}@{HOST}"
        operator = HttpApi(self.nodes[0], OPERATOR, PASSWORDS["default_pass"])
        value = {"value": {"src-uri": uri, "src-queue": "a", "dest-uri": uri, "dest-queue": "b"}}
        operator.put(f"/parameters/shovel/{quote('/')}/secret", value)
        uri = uri.replace(CONTENTS["URI of a parameter"], CONTENTS["URI of a global parameter"])
        assert operator.put("/global-parameters/secret", {"value": uri}).status == 201

    def _other_questions(self) -> None:
        """Whatever an operator asks when something is wrong; and `spark-ops`, with credentials in the URL."""
        for operation in (
            "environment",
            "os_env",
            "command_line_arguments",
            "certificates",
            "cluster_status",
        ):
            self.ask(operation, node=0)
            self.ask(operation, node=2)
        self.ask("log_tail", number=5000)
        assert self.ctl("report", node=2) == 0
        wrong = PASSWORDS["wrong password over HTTP"]
        place = f"{HOST}:{self.nodes[0].http_port}"
        command = ["spark_ops", "plan", "--topology", f"http://{OPERATOR}:{wrong}@{place}"]
        assert self._command("spark-ops plan", command) != 0


def _amqplain(user: str, password: str) -> bytes:
    return encode_table({"LOGIN": longstr(user), "PASSWORD": longstr(password)})[4:]
