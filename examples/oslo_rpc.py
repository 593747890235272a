"""OpenStack's oslo.messaging: a server of a topic, a call with an answer and a cast without.

    python examples/oslo_rpc.py serve
    python examples/oslo_rpc.py call world
    seq 1000 | python examples/oslo_rpc.py call -

TRANSPORT_URL names the broker, or several: rabbit://user:password@host1:5672,user:password@host2:5672/vhost.
"""

import os
import socket
import sys

import oslo_messaging
from oslo_config import cfg

URL = os.environ.get("TRANSPORT_URL", "rabbit://guest:guest@localhost:5672/")
TOPIC = "greetings"
OPTIONS = {
    "amqp_durable_queues": "true",  # Queues survive a restart of all nodes, not only the loss of some.
    "heartbeat_timeout_threshold": "10",  # A broker that is silent for longer is left.
    "kombu_reconnect_delay": "0.5",
    "rabbit_interval_max": "2",  # Between attempts, once all hosts have been tried.
}
"""Of the section oslo_messaging_rabbit of a configuration file; a transport URL may carry them, too."""
ANSWER_S = 5
ATTEMPTS = 24


class Greeter:
    """The endpoint: its methods are what clients can call."""

    target = oslo_messaging.Target(version="1.0")

    def greet(self, context, name):
        return f"hello {name}"

    def note(self, context, text):
        print(f"noted {text}")


def open_transport():
    """Connections are made when they are needed, to one of the hosts; the next one is tried when it is away."""
    cfg.CONF([], project="oslo_rpc")
    query = "&".join(f"{name}={value}" for name, value in OPTIONS.items())
    return oslo_messaging.get_rpc_transport(cfg.CONF, url=f"{URL}{'&' if '?' in URL else '?'}{query}")


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


def greet(client, name):
    """Call until there is an answer. A call that may be done twice can be repeated, others need a key of their own."""
    for attempt in range(ATTEMPTS):
        try:
            return client.call({}, "greet", name=name)
        except (oslo_messaging.MessagingTimeout, oslo_messaging.MessageDeliveryFailure) as error:
            print(f"again after {attempt + 1}: {error}", file=sys.stderr)
    raise SystemExit(f"no answer for {name}")


def call(names):
    """Ask for greetings, print them, and leave a note of each. A cast returns when the broker has confirmed it."""
    transport = open_transport()
    client = oslo_messaging.get_rpc_client(
        transport, oslo_messaging.Target(topic=TOPIC, version="1.0"), timeout=ANSWER_S
    )
    for name in names:
        print(greet(client, name))
        client.cast({}, "note", text=f"{name} was greeted")
    transport.cleanup()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    elif sys.argv[1:] == ["call", "-"]:
        call(line.rstrip("\n") for line in sys.stdin)
    elif sys.argv[1:2] == ["call"] and len(sys.argv) == 3:
        call([sys.argv[2]])
    else:
        sys.exit(__doc__)
