"""Predictions over HTTP at a label holder that serves: `POST /v1/predict` and what belongs to it (docs/service.md)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from colonnade.deploy.predict import Unanswerable
from colonnade.errors import ColonnadeError, ConfigError, DataError, LinkError, Refused, RunError, Unwritable
from colonnade.methods.base import GivesPoints
from colonnade.model import Model
from colonnade.predict import Prediction, WhenAbsent
from colonnade.service.askers import Askers, UnknownIds
from colonnade.service.metrics import TYPE, Metrics
from colonnade.service.questions import Call, Ending, Full, Questions, TooLate, TooManyOfOne
from colonnade.service.versions import finished, list_versions, read_models
from colonnade.web.access import Access
from colonnade.web.app import Problem, read_json
from colonnade.web.settings import HttpSection

KEYS = ("ids", "model", "absent")
SOON = 1.0  # seconds after which to try again what a moment may change

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """What the body of a call says."""

    ids: list[str]
    model: int | None
    absent: WhenAbsent | None  # None: as the settings say


def read_wanted(body: object, most_rows: int) -> Wanted:
    """Check the body of a call; `Problem` with what was needed and what came."""
    if not isinstance(body, Mapping):
        raise Problem(400, 'the body needs to be an object, e.g. {"ids": ["17"]}')
    strange = next((str(key) for key in body if key not in KEYS), None)
    if strange is not None:
        raise Problem(400, f"{strange[:64]!r} is no setting of a call; there are {', '.join(KEYS)}")
    ids = body.get("ids")
    if not isinstance(ids, list) or not ids:
        raise Problem(400, "ids: needed a list of at least one id")
    if len(ids) > most_rows:
        raise Problem(413, f"ids: {len(ids):,} of them; at most {most_rows:,} are taken: send fewer in one call")
    wrong = next((at for at, id in enumerate(ids) if not isinstance(id, (str, int)) or isinstance(id, bool)), None)
    if wrong is not None:
        raise Problem(400, f"ids: number {wrong + 1} is neither text nor a whole number")
    model, absent = body.get("model"), body.get("absent")
    if model is not None and (type(model) is not int or not 0 < model < 10**9):
        raise Problem(400, "model: needed the number of a version, e.g. 2, or nothing for the one in use")
    if absent not in (None, "refuse", "leave-out"):
        raise Problem(400, "absent: needed 'refuse' or 'leave-out'")
    return Wanted([str(id) for id in ids], model, absent)


class Predictions:
    """Answers calls for predictions; the parties are asked in another thread."""

    def __init__(self, settings: HttpSection, askers: Askers, questions: Questions, up: Callable[[], bool]) -> None:
        self.settings, self.askers, self.questions, self.up = settings, askers, questions, up
        self.metrics = Metrics(lambda: questions.waiting, lambda: len(askers.away), lambda: questions.asked)

    async def answer(self, wanted: Wanted, caller: str) -> dict[str, object]:
        """The answer to one call, within the deadline; `Problem` where there is none."""
        deadline = time.monotonic() + self.settings.deadline
        version, rows = wanted.model or self.askers.used, self.askers.rows
        if not version or rows is None:
            raise Problem(503, "there is no model in use yet", retry=30)
        if version not in self.askers.models and not finished(self.askers.place.folder, version):
            raise Problem(404, f"there is no finished version {version} of the model; GET /v1/models lists them")
        try:
            wish = rows.wish(wanted.ids, wanted.absent or self._absent(version))
            call = self.questions.put(Call(version, wish, caller, deadline))
            left = deadline - time.monotonic()
            found = await asyncio.wait_for(asyncio.wrap_future(call.answer), max(left, 0.0) + 0.5)
        except Exception as error:
            if type(error) in (RunError, Unwritable):
                logger.error("a call was not answered: %s", error)
            raise problem_of(error, self.settings.deadline, self.up()) from None  # a log of it would name ids
        return self._told(wanted.ids, version, found)

    def _absent(self, version: int) -> WhenAbsent:
        """What becomes of a call that does not say what to do about somebody who is away."""
        if self.settings.absent != "auto":
            return self.settings.absent
        return "leave-out" if version in self.askers.leave_out else "refuse"

    def _told(self, ids: list[str], version: int, found: Prediction) -> dict[str, object]:
        model, left_out = self.askers.models[version], found.left_out
        everywhere = set(left_out).intersection(*found.without) if left_out else set[str]()
        rows = predictions_of(model, ids, found)
        if left_out and set(found.without) != {tuple(sorted(everywhere))}:  # it differs from row to row
            for row, without in zip(rows, found.without, strict=True):
                row["left_out"] = list(without)
        return {
            "model": version,
            "run": self.askers.place.run(version),
            "classes": [_plain(name) for name in model.classes],
            "answered": [party for party in model.design.parties if party not in everywhere],
            "left_out": list(left_out),
            "predictions": rows,
        }


def predictions_of(model: Model, ids: list[str], found: Prediction) -> list[dict[str, object]]:
    """By row: what the model says, in the words of the labels; probabilities where there are any."""
    answers = model.answers(found.logits, None, found.complete)
    rows: list[dict[str, object]] = [
        {"id": id, "prediction": told}
        for id, told in zip(ids, model.task.decide(answers.decided).tolist(), strict=True)
    ]
    if model.classes:
        shares = model.task.probabilities(answers.calibrated.double()).tolist()
        for row, share in zip(rows, shares, strict=True):
            row["probabilities"] = [float(f"{p:.6g}") for p in share]
    if isinstance(model.method, GivesPoints):
        for row, points in zip(rows, model.method.points(found.logits).tolist(), strict=True):
            row["points"] = points
    return rows


def _plain(name: object) -> object:
    return name.item() if hasattr(name, "item") else name


def problem_of(error: BaseException, deadline: float, up: bool) -> Problem:
    """What whoever called is told about an error; what is unexpected is none of its business, and raised again."""
    nothing = f"no answer within {deadline:g} s; nothing was predicted"
    if isinstance(error, TooLate):
        who = f"; {', '.join(error.parties)} did not answer" if error.parties else ""
        return Problem(503, nothing + who, retry=SOON, facts={"away": list(error.parties)} if error.parties else {})
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        why = "" if up else "; the server between the organisations cannot be reached"
        return Problem(503, nothing + why, retry=SOON)
    if isinstance(error, UnknownIds):
        return Problem(422, str(error), facts={"unknown": error.count, "first": error.first})
    for kind, status, told, retry in TOLD:
        if isinstance(error, kind):
            return Problem(status, told.format(error), retry=retry)
    raise error


# Errors that whoever called can do something about, in their own words; of others only that there was one.
TOLD: tuple[tuple[type[ColonnadeError], int, str, float | None], ...] = (
    (TooManyOfOne, 429, "{}, which is all that may of one caller; nothing was predicted", SOON),
    (Full, 503, "{}, which is all that may; nothing was predicted", SOON),
    (Ending, 503, "{}; nothing was predicted", 5),
    (Refused, 409, "{}; nothing was predicted", None),
    (Unanswerable, 409, "{}", None),
    (ConfigError, 400, "{}", None),
    (DataError, 400, "{}", None),
    (LinkError, 503, "the connection between the organisations is not there; nothing was predicted", 5),
    (RunError, 503, "the model cannot be asked at present; its operator sees why; nothing was predicted", 30),
)


def routes(predictions: Predictions, access: Access) -> APIRouter:
    """The addresses of the service."""
    router, settings, metrics = APIRouter(), predictions.settings, predictions.metrics

    @router.post("/v1/predict")
    async def predict(request: Request) -> Response:
        began, who = time.perf_counter(), "-"
        outcome = "error"
        try:
            caller = access.caller(request, "predict")
            who = caller.name
            wanted = read_wanted(await read_json(request, settings.most_bytes), settings.most_rows)
            told = await predictions.answer(wanted, caller.name)
            metrics.rows.inc(len(wanted.ids))
            outcome = "answered"
            return JSONResponse(told)
        except Problem as problem:
            outcome = str(problem.status)
            raise
        finally:
            metrics.calls.labels(who, outcome).inc()
            metrics.seconds.observe(time.perf_counter() - began)

    @router.get("/v1/models")
    def models(request: Request) -> dict[str, object]:
        access.caller(request, "predict")
        return models_of(predictions.askers.place.folder)

    @router.get("/healthz")
    async def healthy() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz")
    async def ready() -> dict[str, str]:
        if not predictions.askers.ready:
            raise Problem(503, "there is no model in use that can be asked", retry=SOON)
        if not predictions.up():
            raise Problem(503, "the server between the organisations cannot be reached", retry=SOON)
        return {"status": "ready"}

    @router.get("/metrics")
    async def counted(request: Request) -> Response:
        access.caller(request, "watch")
        return Response(metrics.text(), media_type=TYPE)

    return router


def models_of(folder: Path) -> dict[str, object]:
    """The versions, as `GET /v1/models` tells them."""
    known = [
        {"version": v.version, "state": v.state, "metric": v.metric, "validation": v.validation, "test": v.test}
        for v in list_versions(folder)
    ]
    return {"in_use": read_models(folder).used or None, "versions": known}
