"""Online: predictions over HTTP beside whatever else a label holder's process does, for as long as a block runs."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeout  # the built-in one from Python 3.11 on
from types import TracebackType

from colonnade.deploy.predict import Wish
from colonnade.engines.message import Notify
from colonnade.errors import RunError
from colonnade.identity.credentials import Credentials
from colonnade.predict import Prediction
from colonnade.service.askers import Askers, Lines, ModelPlace
from colonnade.service.questions import Call, Most, Questions
from colonnade.web.background import HttpServer
from colonnade.web.callers import Callers
from colonnade.web.page import Page
from colonnade.web.settings import HttpSection

PATIENCE = 5.0  # seconds that a question under way has to end when the process is told to


class Online:
    """`with Online(...)`: calls are answered inside. What is wrong with the settings is said when it is made."""

    def __init__(self, settings: HttpSection, place: ModelPlace, credentials: Credentials, notify: Notify) -> None:
        self.settings, self._place, self._credentials, self._notify = settings, place, credentials, notify
        settings.check_certificate()
        self._callers = Callers(settings.callers)
        self.page: Page | None = None  # the live page, at the same address
        self.running = False

    def __enter__(self) -> Online:
        from colonnade.service.http import Predictions, routes  # FastAPI and Prometheus: only where there is [http]
        from colonnade.web.access import Access
        from colonnade.web.app import new_app

        self._lines = Lines(self._credentials, self._notify)
        self._askers = Askers(self._place, self._notify, self._lines)
        most = Most(self.settings.most_waiting, self.settings.most_waiting_of_one)
        self._questions = Questions(self._askers.ask, most, self._askers.look)
        app, access = new_app(), Access(self._callers, self.settings.calls_per_second)
        app.include_router(routes(Predictions(self.settings, self._askers, self._questions, self._up), access))
        if self.page is not None:
            app.router.routes.extend(self.page.routes)
        self._server = HttpServer(app, self.settings.address)
        self._questions.start()
        try:
            self._server.__enter__()
        except BaseException:
            self._end()
            raise
        self.running = True
        known = len(self._callers.known())
        note = "" if known else "nobody may call yet: colonnade keys add NAME --may predict"
        self._notify("answering", url=self._server.url, callers=known, note=note)
        return self

    def _up(self) -> bool:
        return self._lines.up

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running = False
        if self.page is not None:
            self.page.close()  # or those who watch would keep the server open
        try:
            self._server.__exit__(kind, error, trace)  # calls that are being answered have a while
        finally:
            self._end()

    def _end(self) -> None:
        if self._questions.end(PATIENCE):
            self._askers.close()
            self._lines.close()
        else:
            self._lines.close()  # it waits for the server: let it go
            self._questions.end(PATIENCE)

    def ask(self, version: int, wish: Wish, seconds: float) -> Prediction:
        """Ask the parties of a version for this process itself, between the calls of others."""
        call = self._questions.put(Call(version, wish, "", time.monotonic() + seconds))
        try:
            return call.answer.result(seconds + PATIENCE)
        except FutureTimeout:
            call.answer.cancel()
            raise RunError(f"no answer within {seconds:.0f} s; nothing was predicted") from None
