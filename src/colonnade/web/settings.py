"""[http] of coordinator.toml and party.toml: where calls over HTTP are answered, and whose. Without FastAPI."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.web.background import Address
from colonnade.web.proxies import Proxies


class HttpSection(Settings):
    """[http]: calls over HTTP to a process that serves; without the section there are none."""

    listen: str = Field(
        "127.0.0.1:8080",
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):\d{1,5}$",
        description="host:port; an address of this machine only, or with a certificate any; port 0: any that is free",
    )
    certificate: Path | None = Field(None, description="certificate for https (PEM); needed beyond this machine")
    key: Path | None = Field(None, description="private key of that certificate (PEM, without a password)")
    callers: Path = Field(Path("callers.json"), description="who may call, and what: written by `colonnade keys`")
    page: bool = Field(False, description="also serve the live page")
    page_without_key: bool = Field(
        False, description="whoever can reach it may see the live page; only at an address of this machine"
    )
    absent: Literal["auto", "refuse", "leave-out"] = Field(
        "auto",
        description="a call that does not say it, while a party is away: auto: answered without that party where the "
        "model can, and says so; refuse: only ever with all parties",
    )
    trusted_proxies: tuple[str, ...] = Field(
        (),
        description="addresses or networks of proxies whose X-Forwarded-For says where a call came from, e.g. "
        "10.0.0.0/8; empty: the header is ignored",
    )
    most_bytes: int = Field(2**20, ge=1024, le=2**26, description="bytes that the body of one call may have")
    most_rows: int = Field(10_000, ge=1, le=1_000_000, description="rows that one call may ask about")
    calls_per_second: float = Field(
        100.0, gt=0, le=1e6, description="of one caller, on average; ten seconds' worth may come at once"
    )
    most_waiting: int = Field(500, ge=1, le=100_000, description="calls that may wait for an answer at a time")
    most_waiting_of_one: int = Field(
        100, ge=1, le=100_000, description="the same of one caller, so that it leaves room for others"
    )
    deadline: float = Field(30.0, gt=0, le=3600, description="seconds within which a prediction is answered or refused")

    @model_validator(mode="after")
    def _plain_only_at_home(self) -> HttpSection:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; give both, or none")
        if self.address.port > 65_535:
            raise ValueError(f"listen = {self.listen!r}: a port is at most 65535")
        if self.certificate is None and not _is_loopback(self.address.host):
            raise ValueError(
                f"listen = {self.listen!r} can be reached from other machines, and keys must not travel in plain: give "
                "certificate and key, or listen at 127.0.0.1"
            )
        if self.page_without_key and not self.at_home:
            raise ValueError(
                f"page_without_key is for addresses of this machine, and listen = {self.listen!r} can be reached from "
                "others: give those who watch keys (`colonnade keys add NAME --may watch`)"
            )
        _ = self.proxies  # what is no network is said now
        return self

    def check_certificate(self) -> None:
        """`ConfigError` if the certificate and its key cannot be used: said before anything listens."""
        if self.certificate is None or self.key is None:
            return
        for path in (self.certificate, self.key):
            if not path.is_file():
                raise ConfigError(f"[http]: there is no file {str(path)!r}; needed a certificate and its key (PEM)")
        try:
            # Of a key with a password OpenSSL would ask for it on the terminal; no password opens it here.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ValueError) as error:  # ssl.SSLError is one of the first
            why = getattr(error, "reason", None) or error
            raise ConfigError(
                f"[http]: {self.certificate.name} and {self.key.name} cannot be used ({why}); needed a certificate "
                "and its own key, both PEM, the key without a password"
            ) from None

    @property
    def at_home(self) -> bool:
        """Whether only this machine can reach it."""
        return _is_loopback(self.address.host)

    @property
    def proxies(self) -> Proxies:
        """Whose word counts about where a call came from."""
        return Proxies.of(self.trusted_proxies)

    @property
    def address(self) -> Address:
        """Where to listen."""
        host, _, port = self.listen.rpartition(":")
        return Address(host.strip("[]"), int(port), self.certificate, self.key)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
