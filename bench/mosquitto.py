"""Mosquitto, Debian's MQTT broker: the third one in the workloads of MQTT, as it speaks no AMQP.

Its queues have no limits, as those of the others have none, and it keeps nothing on disk. All else is as it comes.
"""

import shutil
import subprocess
from collections.abc import Sequence

from bench.mqtt_client import MqttSocket
from bench.servers import REPOSITORY, Server

MOSQUITTO = "mosquitto"
PLACES = "/usr/sbin:/usr/local/sbin"
"""Where Debian and others install it; a user's PATH may not have these."""

IN_FLIGHT = 100
"""The most messages that a client has not acknowledged: the default of Fluffle, and what RabbitMQ is set to."""


def mosquitto_program() -> str | None:
    """Return the path of Debian's broker; None: it is not installed."""
    return shutil.which(MOSQUITTO) or shutil.which(MOSQUITTO, path=PLACES)


class Mosquitto(Server):
    """One process of mosquitto. Its `port` is for clients of MQTT."""

    name = "Mosquitto"
    ready_words = r"mosquitto version \S+ running"
    config_name = "mosquitto.conf"

    @staticmethod
    def installed() -> bool:
        return mosquitto_program() is not None

    def command(self) -> Sequence[str]:
        program = mosquitto_program()
        assert program is not None, "not installed"
        return [program, "-c", str(self.directory / self.config_name)]

    def configuration(self) -> Sequence[str]:
        return [
            f"listener {self.port} 127.0.0.1",
            "allow_anonymous true",
            "user root",  # it gives up no rights if it has them: its configuration is in a private directory
            "persistence false",
            "set_tcp_nodelay true",
            "connection_messages false",
            "max_queued_messages 0",
            f"max_inflight_messages {IN_FLIGHT}",
            *self.settings,
        ]

    def _greeted_version(self) -> str:
        MqttSocket(self.port, "bench").close()
        done = subprocess.run([*self.command()[:1], "-h"], capture_output=True, text=True, check=False)
        return done.stdout.partition("\n")[0]

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[str]:
        # What it logs goes to stderr, which is not held in a buffer.
        return subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
