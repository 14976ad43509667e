"""Serving the live page: of one training, of a party, of a label holder. Whatever becomes of it, the others go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from colonnade.config import build
from colonnade.deploy.sections import CoordinatorFile, PartyFile
from colonnade.engines.message import Notify
from colonnade.watching.overview import Overview
from colonnade.watching.source import OneRun, Organisation
from colonnade.web.background import HttpServer
from colonnade.web.callers import Callers
from colonnade.web.page import Page, Source
from colonnade.web.sessions import Sessions
from colonnade.web.settings import HttpSection

AT_HOME = ("127.0.0.1", "localhost", "::1")


@contextmanager
def page_of_training(folder: Path, title: str, listen: str) -> Iterator[str]:
    """The page of one training, for as long as it takes; its address, with a key that only the terminal shows.

    Raises:
        ConfigError: others than this machine could reach the address, or it is taken.
    """
    http, sessions = build(HttpSection, {"listen": listen}, "the live page"), Sessions(None)
    page = Page(OneRun(folder, title), sessions, hosts=AT_HOME)
    with HttpServer(page.app(), http.address) as server:
        try:
            yield f"{server.url}/?key={sessions.invite()}"
        finally:
            page.close()


def page_of(http: HttpSection, source: Source) -> Page:
    """The page of a process that serves, as its [http] section says."""
    callers = Callers(http.callers)
    hosts = AT_HOME if http.at_home else ()
    secure = http.certificate is not None
    return Page(source, Sessions(callers), callers, http.page_without_key, secure, hosts, http.proxies)


def party_page(config: Path, overrides: Sequence[str], read: PartyFile, notify: Notify) -> Page | None:
    """The page of a party that serves; None: its file asks for none."""
    if read.http is None or not read.http.page:
        return None
    overview = Overview([config], overrides)
    source = Organisation(read.party.name, overview, read.party.folder, read.credentials(), notify)
    return page_of(read.http, source)


def label_holder_page(config: Path, overrides: Sequence[str], read: CoordinatorFile) -> Page | None:
    """The page of a label holder that serves; None: its file asks for none."""
    if read.http is None or not read.http.page:
        return None
    overview = Overview([config], overrides)
    return page_of(read.http, Organisation(read.coordinator.run, overview, read.coordinator.folder))


@contextmanager
def served(page: Page | None, http: HttpSection | None, notify: Notify) -> Iterator[None]:
    """Serve a page beside something else; without one, nothing is served."""
    if page is None or http is None:
        yield
        return
    with HttpServer(page.app(), http.address) as server:
        notify("page", url=server.url)
        try:
            yield
        finally:
            page.close()
