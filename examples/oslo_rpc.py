"""OpenStack's oslo.messaging: a server of a topic, a call with an answer and a cast without.

    python examples/oslo_rpc.py serve
    python examples/oslo_rpc.py call world

TRANSPORT_URL names the broker, or several: rabbit://user:password@host1:5672,user:password@host2:5672/vhost.
"""

import os
import socket
import sys

import oslo_messaging
from oslo_config import cfg

URL = os.environ.get("TRANSPORT_URL", "rabbit://guest:guest@localhost:5672/")
TOPIC = "greetings"


class Greeter:
    """The endpoint: its methods are what clients can call."""

    target = oslo_messaging.Target(version="1.0")

    def greet(self, context, name):
        return f"hello {name}"

    def note(self, context, text):
        print(f"noted {text}")


def open_transport():
    cfg.CONF([], project="oslo_rpc")
    return oslo_messaging.get_rpc_transport(cfg.CONF, url=URL)


def serve():
    """Answer calls until interrupted."""
    target = oslo_messaging.Target(topic=TOPIC, server=socket.gethostname())
    server = oslo_messaging.get_rpc_server(open_transport(), target, [Greeter()])
    server.start()
    print("serving")
    try:
        server.wait()
    except KeyboardInterrupt:
        server.stop()
        server.wait()


def call(name):
    """Ask for a greeting, print it, and leave a note."""
    transport = open_transport()
    client = oslo_messaging.get_rpc_client(
        transport, oslo_messaging.Target(topic=TOPIC, version="1.0"), timeout=30
    )
    print(client.call({}, "greet", name=name))
    client.cast({}, "note", text=f"{name} was greeted")
    transport.cleanup()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    elif sys.argv[1:2] == ["call"] and len(sys.argv) == 3:
        call(sys.argv[2])
    else:
        sys.exit(__doc__)
