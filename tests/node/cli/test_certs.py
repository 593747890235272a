"""`fluffle certs`: files that TLS takes, keys that nobody else reads, nothing overwritten."""

import argparse
import ssl
import stat
import sys
from pathlib import Path

import pytest
from cryptography import x509

from cluster.transport.security import Security
from node.cli import certs


def run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    certs.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["certs", *map(str, arguments)])
    code: int = parsed.run(parsed)
    return code


def names(path: Path) -> tuple[list[str], list[str]]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        alternatives.get_values_for_type(x509.DNSName),
        list(map(str, alternatives.get_values_for_type(x509.IPAddress))),
    )


def test_files_and_modes(tmp_path: Path) -> None:
    assert run("rabbit@n1", "rabbit@n2", "--out", tmp_path / "certs") == 0
    files = {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (tmp_path / "certs").iterdir()}
    assert set(files) == {
        f"{name}.{kind}" for name in ("ca", "rabbit@n1", "rabbit@n2") for kind in ("pem", "key")
    }
    assert [name for name, mode in files.items() if name.endswith(".key") and mode] == []


def test_names_of_a_certificate(tmp_path: Path) -> None:
    """Contract: name, host part, localhost, 127.0.0.1; and what is asked for."""
    assert run("rabbit@n1", "--out", tmp_path, "--also", "n1.example.org", "--also", "192.0.2.7") == 0
    assert names(tmp_path / "rabbit@n1.pem") == (
        ["rabbit@n1", "n1", "localhost", "n1.example.org"],
        ["127.0.0.1", "192.0.2.7"],
    )


def test_a_host_that_is_an_address(tmp_path: Path) -> None:
    assert run("rabbit@127.0.0.2", "--out", tmp_path) == 0
    assert names(tmp_path / "rabbit@127.0.0.2.pem") == (
        ["rabbit@127.0.0.2", "localhost"],
        ["127.0.0.2", "127.0.0.1"],
    )


def test_the_authority_vouches_for_nodes_that_come_later(tmp_path: Path) -> None:
    assert run("n1", "--out", tmp_path) == 0
    authority = (tmp_path / "ca.pem").read_bytes()
    assert run("n2", "--out", tmp_path) == 0
    assert (tmp_path / "ca.pem").read_bytes() == authority
    ca = x509.load_pem_x509_certificate(authority)
    for name in ("n1", "n2"):
        x509.load_pem_x509_certificate((tmp_path / f"{name}.pem").read_bytes()).verify_directly_issued_by(ca)


def test_a_node_takes_them(tmp_path: Path) -> None:
    assert run("n1", "--out", tmp_path) == 0
    files = [str(tmp_path / name) for name in ("ca.pem", "n1.pem", "n1.key")]
    assert Security.read(*files).has_certificates
    context = ssl.create_default_context(cafile=files[0])
    context.load_cert_chain(files[1], files[2])


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("n1", "--out", tmp_path) == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert run("n2", "n1", "--out", tmp_path) == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert "n1.pem is there already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../n1", "n 1", "", "rabbit@", "ca", "n" * 65, "kaninchen@höhle", "-n"])
def test_a_name_that_cannot_be_one(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", tmp_path / "certs", "--", name) == 1
    assert "cannot be the name of a node" in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize("broken", [b"nonsense", b""])
def test_an_authority_that_cannot_be_used(
    tmp_path: Path, broken: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("n1", "--out", tmp_path) == 0
    (tmp_path / "ca.key").write_bytes(broken)
    assert run("n2", "--out", tmp_path) == 1
    assert "ca.key" in capsys.readouterr().err


def test_the_key_of_another_authority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("n1", "--out", tmp_path / "a") == 0
    assert run("n1", "--out", tmp_path / "b") == 0
    (tmp_path / "a" / "ca.key").write_bytes((tmp_path / "b" / "ca.key").read_bytes())
    assert run("n2", "--out", tmp_path / "a") == 1
    assert "is not the key of" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert run("n1", "--out", tmp_path / "file" / "certs") == 1
    assert "Not a directory" in capsys.readouterr().err


def test_without_cryptography(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert run("n1", "--out", tmp_path) == 69
    assert "pip install cryptography" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["0", "-1", "100000", "x"])
def test_days_out_of_range(tmp_path: Path, days: str) -> None:
    with pytest.raises(SystemExit):
        run("n1", "--out", tmp_path, f"--days={days}")
