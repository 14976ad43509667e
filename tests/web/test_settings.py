"""[http]: what is valid, and that keys never travel in plain beyond this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.errors import ConfigError
from colonnade.identity.certificates import make_trial
from colonnade.web.settings import HttpSection


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("127.8.0.1:0", "127.8.0.1", 0),
        ("localhost:80", "localhost", 80),
        ("[::1]:443", "::1", 443),
    ],
)
def test_addresses_of_this_machine_may_be_plain(listen: str, host: str, port: int) -> None:
    address = HttpSection(listen=listen).address
    assert (address.host, address.port, address.scheme) == (host, port, "http")


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "api.bank.example:443", "127.0.0.1.example:1"]
)
def test_others_need_a_certificate(listen: str) -> None:
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        HttpSection(listen=listen)
    assert HttpSection(listen=listen, certificate=Path("a.crt"), key=Path("a.key")).address.scheme == "https"


@pytest.mark.parametrize(
    "listen", ["", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "http://localhost:80", "::1:80", "localhost:99999"]
)
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match="listen"):
        HttpSection(listen=listen)


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(ConfigError, match="certificate and key belong together"):
        HttpSection(certificate=Path("a.crt"))


def test_a_certificate_that_cannot_be_used_is_said_before_anything_listens(tmp_path: Path) -> None:
    make_trial(tmp_path / "certs", ["first"])
    good, other, none = (tmp_path / "certs" / name for name in ("server.crt", "first.key", "no.key"))
    HttpSection(certificate=good, key=tmp_path / "certs" / "server.key").check_certificate()
    HttpSection().check_certificate()
    with pytest.raises(ConfigError, match=r"server\.crt and first\.key cannot be used"):
        HttpSection(certificate=good, key=other).check_certificate()
    with pytest.raises(ConfigError, match="there is no file"):
        HttpSection(certificate=good, key=none).check_certificate()


@pytest.mark.parametrize(
    ("network", "told"),
    [
        ("10.0.0.1/8", r"'10.0.0.1/8' is no network; needed .* is '10.0.0.0/8' meant"),
        ("proxy.bank.example", "'proxy.bank.example' is no network; needed addresses or networks such as"),
        ("10.0.0.0/33", "is no network"),
        ("", "is no network"),
        ("*", "is no network"),
        ("0.0.0.0/0", "is every address"),
        ("::/0", "is every address"),
    ],
)
def test_what_is_no_proxy_is_refused(network: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        HttpSection(trusted_proxies=("10.0.0.0/8", network))


def test_proxies_are_none_by_default() -> None:
    assert HttpSection().proxies.networks == ()
    with pytest.raises(ConfigError, match="trusted_proxies"):
        HttpSection(trusted_proxies="10.0.0.0/8")  # type: ignore[arg-type]  # a text instead of a list
    assert len(HttpSection(trusted_proxies=("10.0.0.0/8", "192.0.2.7", "fd00::/8")).proxies.networks) == 3
