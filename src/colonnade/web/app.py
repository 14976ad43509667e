"""An application to serve over HTTP: whatever goes wrong is one sentence as JSON, and nothing of the inside is told.

{"error": "the body has 2,000,000 bytes; at most 1,048,576 are taken: ask about fewer rows at a time"}
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colonnade.errors import ColonnadeError

logger = logging.getLogger(__name__)


class Problem(ColonnadeError):
    """Why a call is not answered as it was meant: a status, a sentence, and perhaps facts and when to try again."""

    def __init__(
        self, status: int, sentence: str, *, retry: float | None = None, facts: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.retry, self.facts = status, retry, dict(facts or {})

    def response(self) -> Response:
        """As it is sent."""
        headers = {} if self.retry is None else {"Retry-After": str(max(1, math.ceil(self.retry)))}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        told = json.dumps({"error": str(self), **self.facts})  # in ASCII: whatever was sent can be sent back
        return Response(told, self.status, headers, media_type="application/json")


UNEXPECTED = Problem(500, "something went wrong here, and was logged; the call was not answered")


def new_app() -> FastAPI:
    """An application without pages: routes are added by whoever has something to serve."""
    app = FastAPI(title="Colonnade", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        told = {404: "there is nothing at this address", 405: "this address takes another method"}
        known = JSONResponse({"error": told.get(error.status_code, "the call cannot be taken")}, error.status_code)
        known.headers.update(error.headers or {})
        return known

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return Problem(400, "the address or its parameters are not valid").response()

    app.add_middleware(Guarded)
    return app


class Guarded:
    """Around all routes: a fault of the program is logged and told as 500, and no answer is kept by anybody between."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call."""
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                headers.setdefault("Cache-Control", "no-store")
                headers.setdefault("X-Content-Type-Options", "nosniff")
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception:  # whoever called learns nothing of it
            logger.exception("a call to %s failed", str(scope.get("path"))[:200])
            if not begun:
                await UNEXPECTED.response()(scope, receive, sending)


async def read_json(request: Request, most: int) -> object:
    """The body of a call, as long as it has at most so many bytes; the rest is not even read.

    Raises:
        Problem: it is longer (413), or no JSON (400).
    """
    said = request.headers.get("content-length", "")
    taken, size = list[bytes](), int(said) if said.isascii() and said.isdigit() else 0
    if size <= most:
        size = 0
        try:
            async for piece in request.stream():
                size += len(piece)
                if size > most:
                    break
                taken.append(piece)
        except ClientDisconnect:  # whoever called went away: nobody reads this
            raise Problem(400, "the call broke off") from None
    if size > most:
        raise Problem(413, f"the body has more than {most:,} bytes, the most that is taken: send less in one call")
    try:
        return json.loads(b"".join(taken), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not JSON; needed an object in UTF-8") from None


def _no_number(text: str) -> object:
    raise ValueError(text)
