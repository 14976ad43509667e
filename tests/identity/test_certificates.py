"""Trial certificates: what they may be used for, what is never overwritten, and the command that makes them."""

from __future__ import annotations

import os
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from colonnade.errors import ConfigError, IdentityError
from colonnade.identity import certificates
from colonnade.identity.certificates import make_trial
from tests.cli.conftest import Call, cli
from tests.identity.issuing import authority, issue

__all__ = ["cli"]  # the fixture
ALL = sorted(f"{name}.{end}" for name in ("ca", "server", "coordinator", "first", "second") for end in ("crt", "key"))


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_everything_a_trial_needs_and_keys_are_private(tmp_path: Path) -> None:
    before = os.umask(0)  # the worst case: a umask that hides nothing
    try:
        made = make_trial(tmp_path / "certs", ["first", "second"])
    finally:
        os.umask(before)
    assert sorted(made.written) == sorted(contents(made.folder)) == ALL
    assert made.kept == ()
    assert [path.name for path in tmp_path.iterdir()] == ["certs"]
    for key in made.folder.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    days = (made.expires - datetime.now(timezone.utc)) / timedelta(days=1)
    assert 29.9 < days <= 30


def test_each_certificate_is_for_one_use(tmp_path: Path) -> None:
    folder = make_trial(tmp_path / "certs", ["first"], ["nats.example", "10.0.0.7", "::1"]).folder
    ca = read(folder / "ca.crt")
    limits = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.critical, limits.value.ca, limits.value.path_length) == (True, True, 0)
    may = ca.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (may.key_cert_sign, may.digital_signature) == (True, False)
    for name, use in (("server", ExtendedKeyUsageOID.SERVER_AUTH), ("first", ExtendedKeyUsageOID.CLIENT_AUTH)):
        leaf = read(folder / f"{name}.crt")
        leaf.verify_directly_issued_by(ca)
        assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [use]
        assert leaf.not_valid_after_utc < ca.not_valid_after_utc
    hosts = read(folder / "server.crt").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["nats.example"]
    assert [str(ip) for ip in hosts.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "::1"]
    with pytest.raises(x509.ExtensionNotFound):  # nats-server would take one for the user's name
        read(folder / "first.crt").extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_a_newcomer_is_added_and_nothing_else_changes(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    make_trial(folder, ["first", "second"])
    before = contents(folder)
    made = make_trial(folder, ["newcomer"])
    assert made.written == ("newcomer.crt", "newcomer.key")
    assert set(made.kept) == {f"{n}.{e}" for n in ("ca", "server", "coordinator") for e in ("crt", "key")}
    assert {name: text for name, text in contents(folder).items() if not name.startswith("newcomer")} == before
    read(folder / "newcomer.crt").verify_directly_issued_by(read(folder / "ca.crt"))
    assert make_trial(folder, ["first", "newcomer"]).written == ()
    assert [path.name for path in tmp_path.iterdir()] == ["certs"]


def test_an_empty_folder_is_as_good_as_none(tmp_path: Path) -> None:
    make_trial(tmp_path, ["first"])
    assert (tmp_path / "first.key").exists()


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(ConfigError, match="no authority"):
            make_trial(folder, ["first"])
    assert contents(tmp_path) == {"file": b"mine"}


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    folder = make_trial(tmp_path / "certs", ["first"]).folder
    (folder / "first.crt").unlink()
    before = contents(folder)
    with pytest.raises(IdentityError, match=r"half of first\.crt and first\.key"):
        make_trial(folder, ["first", "second"])
    assert contents(folder) == before


def test_another_host_needs_a_new_server_certificate(tmp_path: Path) -> None:
    folder = make_trial(tmp_path / "certs", ["first"], ["nats.example"]).folder
    make_trial(folder, ["second"], ["nats.example"])
    with pytest.raises(IdentityError, match=r"does not cover the host 'other\.example'"):
        make_trial(folder, ["third"], ["nats.example", "other.example"])
    assert not (folder / "third.crt").exists()
    for end in ("crt", "key"):
        (folder / f"server.{end}").unlink()
    assert make_trial(folder, ["first"], ["other.example"]).written == ("server.crt", "server.key")


def test_an_authority_that_cannot_sign_is_refused(tmp_path: Path) -> None:
    folder = make_trial(tmp_path / "certs", ["first"]).folder
    other = authority()
    (folder / "ca.key").write_bytes(other.key_pem)
    with pytest.raises(IdentityError, match="does not fit"):
        make_trial(folder, ["second"])
    (folder / "ca.key").write_bytes(b"damaged")
    with pytest.raises(IdentityError, match=r"ca\.key"):
        make_trial(folder, ["second"])
    old = issue("old", days=(-9, -1))
    (folder / "ca.crt").write_bytes(old.pem)
    (folder / "ca.key").write_bytes(old.key_pem)
    with pytest.raises(IdentityError, match=r"ca\.crt.*expired on"):
        make_trial(folder, ["second"])


def test_an_expired_certificate_is_named(tmp_path: Path) -> None:
    folder = make_trial(tmp_path / "certs", ["first"]).folder
    (folder / "first.crt").write_bytes(issue("first", days=(-9, -1)).pem)
    with pytest.raises(IdentityError, match=r"first\.crt.*expired on"):
        make_trial(folder, ["first", "second"])


@pytest.mark.parametrize("fails_at", ["ca", "server", "first"])
def test_nothing_is_left_of_a_failure(fails_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = certificates._write_pair

    def write(folder: Path, name: str, *rest: object) -> None:
        if name == fails_at:
            raise OSError(28, "No space left on device")
        real(folder, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(certificates, "_write_pair", write)
    with pytest.raises(ConfigError, match="No space left"):
        make_trial(tmp_path / "certs", ["first"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "party", ["", "1st", "a-b", "a.b", "a b", "a*", "ä", "x" * 33, "../a", "coordinator", "Server", "ca", "a\n"]
)
def test_a_name_that_is_no_subject_or_file_is_refused(party: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="party"):
        make_trial(tmp_path / "certs", ["good", party])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["", "a b", "tls://h", "h:4222", "*.example", "-h", "h..x", "x" * 64])
def test_a_host_that_is_none_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="host"):
        make_trial(tmp_path / "certs", ["first"], [host])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("days", [0, -1, 10_000])
def test_a_life_that_is_none_is_refused(days: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="days"):
        make_trial(tmp_path / "certs", ["first"], days=days)


def test_the_same_party_twice_is_refused(tmp_path: Path) -> None:
    for twice in (["first", "first"], ["first", "FIRST"]):
        with pytest.raises(ConfigError, match="twice"):
            make_trial(tmp_path / "certs", twice)


def test_the_command(cli: Call) -> None:
    done = cli("certificates", "--party", "first", "--party", "second", "--host", "nats.example", "--json")
    assert done.code == 0
    assert sorted(done.json["written"]) == ALL
    assert done.json["kept"] == []
    later = cli("certificates", "--party", "newcomer", "--folder", "certs")
    assert "newcomer.key" in later.out
    assert "in production every organisation makes its own key" in later.out
    assert "nothing was written" in cli("certificates", "--party", "newcomer").out


def test_the_command_refuses_in_one_sentence(cli: Call) -> None:
    done = cli("certificates", "--party", "a.b")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert not Path("certs").exists()
    assert cli("certificates").code == 2
    done = cli("certificates", "--party", "a", "--folder", "no/such/place")
    assert (done.code, done.err.count("\n")) == (2, 1)
