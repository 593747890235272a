"""TLS contexts and the user in a client's certificate: real certificates, handshakes in memory."""

import ipaddress
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from node.client.endpoint import TlsFacts
from node.config.config import CertificateLogin, TlsOptions
from node.config.file import ConfigError
from node.io.tls import NoCertificateUser, certificate_user, distinguished_name, server_context, tls_facts
from tests.kit.authority import Authority, client_context

DISTINGUISHED = CertificateLogin()
COMMON = CertificateLogin("common_name")


def san(kind: Any, index: int = 0) -> CertificateLogin:
    return CertificateLogin("subject_alternative_name", kind, index)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def options(authority: Authority) -> TlsOptions:
    server = authority.issue([("CN", "localhost")], [x509.DNSName("localhost")])
    return TlsOptions(server.certificate_file, server.key_file, ca_file=authority.ca_file)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Both ends in memory. Returns the server's; raises ssl.SSLError of whoever refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ends[1].write(b"x")
    assert ends[0].read(1) == b"x"
    return ends[1]


# ---- contexts ----


def test_a_client_without_certificate_is_welcome_by_default(
    authority: Authority, options: TlsOptions
) -> None:
    server = handshake(server_context(options), client_context(authority))
    assert server.version() == "TLSv1.3"
    assert not server.getpeercert()


def test_verify_peer_alone_makes_the_certificate_optional(authority: Authority, options: TlsOptions) -> None:
    context = server_context(replace(options, verify_peer=True))
    assert not handshake(context, client_context(authority)).getpeercert()
    alice = authority.issue([("CN", "alice")])
    certificate = handshake(context, client_context(authority, alice)).getpeercert()
    assert certificate_user(certificate, DISTINGUISHED, verify_peer=True) == "CN=alice"


def test_a_certificate_can_be_required(authority: Authority, options: TlsOptions) -> None:
    context = server_context(replace(options, verify_peer=True, require_peer_certificate=True))
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(context, client_context(authority))


def test_a_certificate_of_another_authority_is_refused(
    authority: Authority, options: TlsOptions, tmp_path: Path
) -> None:
    mallory = Authority(tmp_path).issue([("CN", "alice")])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(replace(options, verify_peer=True)), client_context(authority, mallory))


def test_versions(authority: Authority, options: TlsOptions) -> None:
    old = server_context(replace(options, versions=("tlsv1.2",)))
    assert handshake(old, client_context(authority)).version() == "TLSv1.2"
    client = client_context(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(server_context(replace(options, versions=("tlsv1.3",))), client)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_hole_between_versions_stays_shut(options: TlsOptions) -> None:
    context = server_context(replace(options, versions=("tlsv1.3", "tlsv1.1")))
    assert context.options & ssl.OP_NO_TLSv1_2
    assert not context.options & ssl.OP_NO_TLSv1_1


def test_ciphers(authority: Authority, options: TlsOptions) -> None:
    chosen = replace(options, versions=("tlsv1.2",), ciphers=("ECDHE-ECDSA-AES128-GCM-SHA256",))
    cipher = handshake(server_context(chosen), client_context(authority)).cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_a_list_of_tls_1_3_ciphers_leaves_only_that_version(options: TlsOptions) -> None:
    context = server_context(replace(options, ciphers=("TLS_AES_256_GCM_SHA384",)))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_cipher_order(options: TlsOptions) -> None:
    assert server_context(options).options & ssl.OP_CIPHER_SERVER_PREFERENCE
    off = server_context(replace(options, honor_cipher_order=False))
    assert not off.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_a_key_with_a_password(authority: Authority) -> None:
    locked = authority.issue([("CN", "locked")], password="s3cret")
    options = TlsOptions(locked.certificate_file, locked.key_file, key_password="s3cret")
    assert isinstance(server_context(options), ssl.SSLContext)
    for wrong in ("other", None):
        with pytest.raises(ConfigError, match=r"ssl_options\.certfile, ssl_options\.keyfile") as caught:
            server_context(replace(options, key_password=wrong))
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"certificate_file": "/no/such"}, "ssl_options.certfile"),
        ({"ca_file": "/no/such"}, "ssl_options.cacertfile"),
        ({"dh_file": "/no/such"}, "ssl_options.dhfile"),
        ({"ciphers": ("NO-SUCH-CIPHER",)}, "ssl_options.ciphers"),
    ],
)
def test_what_cannot_be_used_is_named(options: TlsOptions, change: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server_context(replace(options, **change))
    assert caught.value.problems[0].startswith(key)


# ---- users ----


@pytest.fixture(scope="module")
def certificate(authority: Authority, options: TlsOptions) -> Any:
    """Return a client's certificate with several names of each kind, as the server sees it."""
    client = authority.issue(
        [("C", "DE"), ("O", "Acme, Inc."), ("OU", "Bücher"), ("CN", "alice"), ("CN", "second")],
        [
            x509.DNSName("a.example.org"),
            x509.RFC822Name("alice@example.org"),
            x509.DNSName("b.example.org"),
            x509.IPAddress(ipaddress.ip_address("192.0.2.7")),
            x509.UniformResourceIdentifier("urn:alice"),
        ],
    )
    context = server_context(replace(options, verify_peer=True))
    return handshake(context, client_context(authority, client)).getpeercert()


@pytest.mark.parametrize(
    ("login", "user"),
    [
        (DISTINGUISHED, r"CN=second,CN=alice,OU=B\C3\BCcher,O=Acme\, Inc.,C=DE"),
        (COMMON, "alice,second"),
        (san("dns"), "a.example.org"),
        (san("dns", 1), "b.example.org"),
        (san("email"), "alice@example.org"),
        (san("ip"), "192.0.2.7"),
        (san("uri"), "urn:alice"),
    ],
)
def test_the_user_of_a_certificate(certificate: Any, login: CertificateLogin, user: str) -> None:
    """amqp-behaviour §1.3 row EXTERNAL, `ssl_cert_login_from`."""
    assert certificate_user(certificate, login, verify_peer=True) == user


@pytest.mark.parametrize(
    ("given", "login", "verify", "reason"),
    [
        (True, DISTINGUISHED, False, "TLS configuration is unsafe"),
        (False, DISTINGUISHED, True, "connection peer presented no TLS (x.509) certificate"),
        (True, san("dns", 2), True, "no name found"),
        (True, san("uri", 1), True, "no name found"),
    ],
)
def test_no_user(certificate: Any, given: bool, login: CertificateLogin, verify: bool, reason: str) -> None:
    with pytest.raises(NoCertificateUser) as caught:
        certificate_user(certificate if given else {}, login, verify_peer=verify)
    assert str(caught.value) == reason


def test_a_certificate_without_common_name_has_no_common_name() -> None:
    with pytest.raises(NoCertificateUser, match="no name found"):
        certificate_user({"subject": ((("organizationName", "o"),),)}, COMMON, verify_peer=True)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a b", "a b"),
        (" a ", r"\ a\ "),
        (" ", r"\ "),
        ("#a#", r"\#a#"),
        ('a"+,;<>\\=', r"a\"\+\,\;\<\>\\="),
        ("a\n\0", r"a\0A\00"),
        ("~", r"\7E"),
        ("é", r"\C3\A9"),
    ],
)
def test_escapes_of_distinguished_names(value: str, written: str) -> None:
    assert distinguished_name(((("commonName", value),),)) == f"CN={written}"


def test_parts_of_a_distinguished_name() -> None:
    """These and the escapes were compared with rabbit_cert_info:subject/1 of RabbitMQ 3.10.8."""
    subject = (
        (("domainComponent", "org"),),
        (("postalCode", "1"),),
        (("commonName", "a"), ("userId", "b")),
        (("1.2.3.4", "x"),),
    )
    assert distinguished_name(subject) == "1.2.3.4=x,CN=a+UID=b,2.5.4.17=1,DC=org"


# ---- what is shown of a connection: management §1.6 ----


def test_what_a_tls_1_3_connection_uses(authority: Authority, options: TlsOptions) -> None:
    asking = replace(options, verify_peer=True)
    alice = authority.issue([("O", "Acme"), ("CN", "alice")])
    facts = tls_facts(handshake(server_context(asking), client_context(authority, alice)))
    assert (facts.protocol, facts.key_exchange) == ("tlsv1.3", "any")
    assert (facts.cipher, facts.hash) in [("aes_256_gcm", "aead"), ("aes_128_gcm", "aead")]
    assert facts.subject == "CN=alice,O=Acme"
    assert facts.issuer == "CN=test authority"
    assert facts.validity == "2020-01-01T00:00:00Z - 2125-12-08T00:00:00Z"


@pytest.mark.parametrize(
    ("suite", "expected"),
    [
        ("ECDHE-ECDSA-AES128-GCM-SHA256", ("ecdhe_ecdsa", "aes_128_gcm", "aead")),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", ("ecdhe_ecdsa", "chacha20_poly1305", "aead")),
        ("ECDHE-ECDSA-AES256-SHA384", ("ecdhe_ecdsa", "aes_256_cbc", "sha384")),
    ],
)
def test_what_a_tls_1_2_connection_uses(
    authority: Authority, options: TlsOptions, suite: str, expected: tuple[str, str, str]
) -> None:
    server = server_context(replace(options, versions=("tlsv1.2",), ciphers=(suite,)))
    client = client_context(authority)
    client.set_ciphers(suite)
    assert tls_facts(handshake(server, client)) == TlsFacts("tlsv1.2", *expected)
