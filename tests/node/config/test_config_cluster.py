"""Settings of the cluster (management §6.1, §6.2; docs/clustering.md, "What a node needs"), without a disk."""

from collections.abc import Mapping

import pytest

from node.config.config import Address, ClusterOptions, SeedNode
from node.config.file import ConfigError
from node.config.load import DEFAULT_FILE, StartOptions, load_config

SECRET = "correct horse"
FILES = {"/secret": f"{SECRET}\n", "/open": SECRET, "/short": "1234567\n", "/ca": "", "/cert": "", "/key": ""}


class MemoryFiles:
    def __init__(self, text: str) -> None:
        self.files = {**FILES, DEFAULT_FILE: text}

    def read(self, path: str) -> bytes | None:
        text = self.files.get(path)
        return None if text is None else text.encode()

    def expand(self, pattern: str) -> list[str]:
        return []

    def readable(self, path: str) -> bool:
        return path in self.files

    def is_private(self, path: str) -> bool:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory")
        return path != "/open"


def load(
    text: str = "", environ: Mapping[str, str] | None = None, options: StartOptions | None = None
) -> ClusterOptions:
    config = load_config(
        options or StartOptions(), environ or {}, MemoryFiles(text), hostname="box.example.org"
    )
    return config.cluster


def problems(
    text: str = "", environ: Mapping[str, str] | None = None, options: StartOptions | None = None
) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(text, environ, options)
    return caught.value.problems


# ---- defaults ----


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("listen", None),
        ("default_listen", Address("127.0.0.1", 25672)),
        ("advertised", "127.0.0.1:25672"),
        ("formation_nodes", ()),
        ("formation_dns_hostname", None),
        ("discovery_retry_limit", 10),
        ("discovery_retry_interval_s", 0.5),
        ("target_size_hint", 1),
        ("node_type", "disc"),
        ("partition_handling", "pause_minority"),
        ("heartbeat_s", 0.12),
        ("lease_s", 1.92),
        ("secret", None),
        ("ca_file", None),
        ("certificate_file", None),
        ("key_file", None),
        ("queue_master_locator", "client-local"),
    ],
)
def test_default(name: str, expected: object) -> None:
    assert getattr(load(), name) == expected
    assert getattr(ClusterOptions(), name) == expected


# ---- single keys ----


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        (
            "cluster_formation.classic_config.nodes.1 = rabbit@a",
            "formation_nodes",
            (SeedNode("rabbit@a", "a:25672"),),
        ),
        (
            "cluster_formation.classic_config.nodes.1 = n1@localhost:25673",
            "formation_nodes",
            (SeedNode("n1@localhost", "localhost:25673"),),
        ),
        ("cluster_formation.node_type = ram", "node_type", "ram"),
        ("cluster_formation.node_type = disk", "node_type", "disc"),
        ("cluster_formation.discovery_retry_limit = 3", "discovery_retry_limit", 3),
        ("cluster_formation.discovery_retry_interval = 100", "discovery_retry_interval_s", 0.1),
        ("cluster_formation.target_cluster_size_hint = 3", "target_size_hint", 3),
        ("cluster_partition_handling = autoheal", "partition_handling", "autoheal"),
        ("cluster_keepalive_interval = 1000", "heartbeat_s", 1.0),
        ("cluster_keepalive_interval = 1000", "lease_s", 16.0),
        ("cluster.lease = 3000", "lease_s", 3.0),
        ("cluster.mirror_flush_interval = 5", "mirror_flush_s", 0.005),
        ("queue_master_locator = min-masters", "queue_master_locator", "min-masters"),
        ("cluster.advertised_address = nat.example:1", "advertised", "nat.example:1"),
        ("cluster.advertised_address = [::1]:1", "advertised", "[::1]:1"),
        ("cluster.secret_file = /secret", "secret", SECRET.encode()),
        ("cluster.secret_file = /secret", "listen", Address("", 25672)),
        ("cluster.secret_file = /secret", "advertised", "box:25672"),
        ("distribution.listener.port_range.min = 4000", "listen", Address("127.0.0.1", 4000)),
        ("distribution.listener.interface = ::1", "listen", Address("::1", 25672)),
        ("distribution.listener.interface = ::1", "advertised", "[::1]:25672"),
        ("listeners.tcp.1 = 5673", "default_listen", Address("127.0.0.1", 25673)),
        ("listeners.tcp.1 = 5673", "listen", None),
        ("listeners.tcp.1 = 0", "default_listen", Address("127.0.0.1", 0)),
        ("listeners.tcp.1 = 60000", "default_listen", Address("127.0.0.1", 0)),
        ("listeners.tcp = none", "default_listen", Address("127.0.0.1", 25672)),
        ("queue_master_locator = random", "listen", None),
        ("cluster_partition_handling = pause_minority", "listen", None),
    ],
)
def test_key(line: str, name: str, expected: object) -> None:
    """management §6.1, row by row."""
    assert getattr(load(line), name) == expected


@pytest.mark.parametrize(
    "line",
    [
        "cluster_formation.peer_discovery_backend = classic_config",
        "cluster_formation.classic_config.nodes.1 = rabbit@a",
        "cluster_formation.node_type = disc",
        "distribution.listener.interface = 127.0.0.1",
    ],
)
def test_what_makes_a_node_listen_for_others(line: str) -> None:
    assert load(line).listen == Address("127.0.0.1", 25672)


def test_seeds_come_in_the_order_of_their_numbers_and_once() -> None:
    start = "cluster_formation.classic_config.nodes"
    nodes = load(f"{start}.10 = c@c\n{start}.2 = b@b\n{start}.1 = a@a\n{start}.11 = a@a:1").formation_nodes
    assert [node.address for node in nodes] == ["a:25672", "b:25672", "c:25672"]


@pytest.mark.parametrize("backend", ["classic_config", "rabbit_peer_discovery_classic_config"])
def test_a_dns_name_counts_only_with_the_dns_back_end(backend: str) -> None:
    config = load_config(
        StartOptions(),
        {},
        MemoryFiles(
            f"cluster_formation.peer_discovery_backend = {backend}\ncluster_formation.dns.hostname = d.example"
        ),
        hostname="box",
    )
    assert config.cluster.formation_dns_hostname is None
    assert config.unused == ("cluster_formation.dns.hostname",)


@pytest.mark.parametrize("backend", ["dns", "rabbit_peer_discovery_dns"])
def test_dns(backend: str) -> None:
    text = (
        f"cluster_formation.peer_discovery_backend = {backend}\ncluster_formation.dns.hostname = d.example\n"
        "cluster_formation.classic_config.nodes.1 = a@a"
    )
    assert (load(text).formation_dns_hostname, load(text).formation_nodes) == ("d.example", ())


def test_a_plugin_that_knows_the_nodes() -> None:
    start = "cluster_formation.peer_discovery_backend"
    text = f"{start} = my_nodes\ncluster_formation.classic_config.nodes.1 = a@a"
    cluster = load(text)
    assert (cluster.formation_plugin, cluster.formation_nodes, cluster.listen) == (
        "my_nodes",
        (),
        Address("127.0.0.1", 25672),
    )
    assert load(f"{start} = classic").formation_plugin is None
    for refused in ("rabbit_peer_discovery_k8s", "consul", "My_nodes", "a-b"):
        with pytest.raises(ConfigError, match="or the name of a plug-in's peer discovery"):
            load(f"{start} = {refused}")


def test_certificates() -> None:
    start = "cluster.ssl_options"
    text = f"{start}.cacertfile = /ca\n{start}.certfile = /cert\n"
    cluster = load(text)
    assert (cluster.ca_file, cluster.certificate_file, cluster.key_file) == ("/ca", "/cert", "/cert")
    assert load(f"{text}{start}.keyfile = /key").key_file == "/key"
    assert cluster.listen == Address("", 25672)


@pytest.mark.parametrize("mode", ["ignore", "autoheal", "pause_if_all_down"])
def test_other_partition_handlings_are_named_as_without_effect(mode: str) -> None:
    config = load_config(
        StartOptions(), {}, MemoryFiles(f"cluster_partition_handling = {mode}"), hostname="box"
    )
    assert config.unused == ("cluster_partition_handling",)


# ---- what stops the start ----


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cluster_formation.classic_config.nodes.1 = rabbit", "allowed: NAME@HOST, or NAME@HOST:PORT"),
        ("cluster_formation.classic_config.nodes.1 = a@b:0", "allowed: NAME@HOST"),
        ("cluster_formation.classic_config.nodes.1 = a@b:c:1", "allowed: NAME@HOST"),
        ("cluster_formation.peer_discovery_backend = k8s", "allowed: classic_config or"),
        (
            "cluster_formation.peer_discovery_backend = dns",
            "dns needs cluster_formation.dns.hostname",
        ),
        ("cluster_formation.dns.hostname = a b", "allowed: a host name"),
        ("cluster_formation.node_type = witness", "allowed: disc or disk or ram"),
        ("cluster_keepalive_interval = 0", "allowed: a whole number from 50 to 60000, in milliseconds"),
        ("cluster.mirror_flush_interval = 1001", "a whole number from 0 to 1000, in milliseconds"),
        ("cluster.lease = 479", "it is shorter than 4 times cluster_keepalive_interval"),
        ("queue_master_locator = nearest", "allowed: client-local or min-masters or random"),
        ("cluster.advertised_address = 5", "allowed: HOST:PORT"),
        ("cluster.secret_file = /nope", "does not exist or cannot be read"),
        ("cluster.secret_file = /open", "can be used by others; allowed: mode 0400 or 0600"),
        ("cluster.secret_file = /short", "the secret has 7 bytes; allowed: from 8 to 1024"),
        ("cluster.ssl_options.cacertfile = /ca", "it needs cluster.ssl_options.cacertfile and"),
        ("cluster.ssl_options.certfile = /cert", "it needs cluster.ssl_options.cacertfile and"),
        ("cluster.ssl_options.keyfile = /key", "it needs cluster.ssl_options.cacertfile and"),
        (
            "distribution.listener.port_range.max = 1",
            "it needs a distribution.listener.port_range.min that is not higher",
        ),
        ("distribution.listener.port_range.min = 0", "allowed: a whole number from 1 to 65535"),
    ],
)
def test_a_bad_value_says_where_and_what_is_allowed(text: str, says: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"{DEFAULT_FILE}:1: {text.partition(' = ')[0]}: ")
    assert says in problem


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1"])
def test_a_node_that_cannot_prove_itself_stays_on_loopback(host: str) -> None:
    """docs/clustering.md, "What a node needs": without a proof the listener is on loopback only."""
    text = f"distribution.listener.interface = {host}"
    (problem,) = problems(text)
    assert "needs cluster.secret_file or cluster.ssl_options: without one only loopback is allowed" in problem
    assert load(f"{text}\ncluster.secret_file = /secret").listen == Address(host, 25672)


def test_a_port_for_nodes_that_does_not_exist_must_be_given() -> None:
    (problem,) = problems("listeners.tcp.1 = 50000\ncluster_formation.node_type = disc")
    assert "AMQP port 50000 and 20000 is no port" in problem


# ---- environment ----


@pytest.mark.parametrize(
    ("environ", "name", "expected"),
    [
        ({"RABBITMQ_DIST_PORT": "4000"}, "listen", Address("127.0.0.1", 4000)),
        ({"RABBITMQ_NODE_PORT": "5673"}, "default_listen", Address("127.0.0.1", 25673)),
        ({"RABBITMQ_ERLANG_COOKIE": SECRET}, "secret", SECRET.encode()),
        ({"RABBITMQ_ERLANG_COOKIE": SECRET}, "listen", Address("", 25672)),
        ({"RABBITMQ_ERLANG_COOKIE": ""}, "secret", None),
        (
            {"FLUFFLE_CLUSTER_SECRET": SECRET, "RABBITMQ_ERLANG_COOKIE": "another one"},
            "secret",
            SECRET.encode(),
        ),
        ({"FLUFFLE_CLUSTER_SECRET_FILE": "/secret"}, "secret", SECRET.encode()),
        (
            {"FLUFFLE_CLUSTER_NODES": "n1@a,n2@b:7"},
            "formation_nodes",
            (SeedNode("n1@a", "a:25672"), SeedNode("n2@b", "b:7")),
        ),
        ({"FLUFFLE_CLUSTER_NODES": "n1@a"}, "listen", Address("127.0.0.1", 25672)),
    ],
)
def test_variable(environ: Mapping[str, str], name: str, expected: object) -> None:
    """management §6.2; docs/configuration.md, "Environment variables"."""
    assert getattr(load(environ=environ), name) == expected


def test_variables_win_over_files() -> None:
    text = (
        "cluster.secret_file = /secret\ndistribution.listener.port_range.min = 1\n"
        "cluster_formation.classic_config.nodes.1 = f@f"
    )
    environ = {
        "RABBITMQ_DIST_PORT": "2",
        "RABBITMQ_ERLANG_COOKIE": "of environment",
        "FLUFFLE_CLUSTER_NODES": "e@e",
    }
    cluster = load(text, environ)
    assert cluster.listen == Address("", 2)
    assert cluster.secret == b"of environment"
    assert cluster.formation_nodes == (SeedNode("e@e", "e:25672"),)


@pytest.mark.parametrize(
    "environ",
    [
        {"RABBITMQ_DIST_PORT": "x"},
        {"RABBITMQ_DIST_PORT": "65536"},
        {"RABBITMQ_ERLANG_COOKIE": "short"},
        {"FLUFFLE_CLUSTER_SECRET": "x" * 1025},
        {"FLUFFLE_CLUSTER_SECRET_FILE": "/nope"},
        {"FLUFFLE_CLUSTER_SECRET_FILE": "/open"},
        {"FLUFFLE_CLUSTER_NODES": "n1"},
    ],
)
def test_a_bad_variable_is_named(environ: Mapping[str, str]) -> None:
    (problem,) = problems(environ=environ)
    assert problem.startswith(f"{next(iter(environ))}: ")


# ---- command line ----


@pytest.mark.parametrize(
    ("peer", "address", "advertised"),
    [
        ("127.0.0.1:7", Address("127.0.0.1", 7), "127.0.0.1:7"),
        ("[::1]:7", Address("::1", 7), "[::1]:7"),
        ("localhost:0", Address("localhost", 0), "localhost:0"),
    ],
)
def test_peer(peer: str, address: Address, advertised: str) -> None:
    cluster = load("distribution.listener.port_range.min = 1", {}, StartOptions(peer=peer))
    assert (cluster.listen, cluster.advertised) == (address, advertised)


def test_a_peer_listener_on_every_interface_advertises_the_nodes_host() -> None:
    options = StartOptions(name="n1@h1", peer=":7")
    assert load("cluster.secret_file = /secret", options=options).advertised == "h1:7"
    (problem,) = problems(options=options)
    assert "only loopback is allowed" in problem


def test_ram() -> None:
    cluster = load(options=StartOptions(ram=True))
    assert (cluster.node_type, cluster.listen) == ("ram", Address("127.0.0.1", 25672))
    assert load("cluster_formation.node_type = disc", options=StartOptions(ram=True)).node_type == "ram"


def test_a_bad_peer_argument() -> None:
    (problem,) = problems(options=StartOptions(peer="localhost"))
    assert problem.startswith("--peer localhost: not allowed; allowed: HOST:PORT")


def test_the_secret_is_never_shown() -> None:
    environ = {"RABBITMQ_ERLANG_COOKIE": "s3cret-s3cret"}
    config = load_config(StartOptions(), environ, MemoryFiles(""), hostname="box")
    assert config.cluster.secret == b"s3cret-s3cret"
    assert "s3cret" not in repr(config)
    assert "s3cret" not in str(problems(environ={"RABBITMQ_ERLANG_COOKIE": "s3cret"}))
