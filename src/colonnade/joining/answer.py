"""The answer of a candidate: one byte per judged row and output, made from its columns and the noisy labels it got.

    party   J models of the told rows; their mean score of each judged row, as one of 256 levels between the 0.1 % and
            the 99.9 % quantile of its own scores                                  up: one byte per row and output
    label holder   reads bytes of the right number, and nothing else

A byte is a level and has no scale, so nothing that arrives can be infinite, no number, or larger than all others.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from colonnade.errors import ModelError, WireError
from colonnade.joining.question import FEWEST, NUMBER, Sample
from colonnade.joining.scores import mean_of_folds
from colonnade.privacy.gate import Gate
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.sealed import Array, Release, Upload
from colonnade.tasks import Task
from colonnade.wire.codec import decode
from colonnade.wire.container import Header
from colonnade.wire.messages import COORDINATOR, Purpose, read_common, read_request

LEVELS = 255
CUT = 0.001  # of the scores, at either end
SCORES = "scores"
HEAD = 2**16  # bytes of a message besides its arrays, at most


def read_question(payload: bytes, name: str, party: str, rows: int, task: Task) -> tuple[Sample, Tensor]:
    """Which rows the label holder tells of and asks about, and the targets (T, K) it told; nothing of it is trusted.

    Raises:
        WireError: it is no question about `rows` rows and labels of this task.
    """
    header, arrays = decode(payload)
    if (header.get("run"), header.get("kind"), header.get("sender")) != (name, "ALL", COORDINATOR):
        raise WireError("the label holder's question is about something else than was agreed")
    request, common = read_request(header, arrays, (party,)), read_common(arrays)
    purposes = [query.purpose for query in request.queries]
    if purposes != [Purpose.TRAIN, Purpose.EVALUATE] or request.number != NUMBER or set(common) != {"targets"}:
        raise WireError("the label holder's question does not name rows to learn from, their labels and rows to score")
    sample, told = Sample(*(query.rows for query in request.queries)), common["targets"]
    for numbers in (sample.told, sample.judged):
        ascending = bool((numbers.diff() > 0).all())
        if len(numbers) < FEWEST or not ascending or int(numbers[0]) < 0 or int(numbers[-1]) >= rows:
            raise WireError(
                f"the label holder asks about rows that are not {FEWEST} or more of 0 to {rows - 1}, in order"
            )
    if bool(torch.isin(sample.told, sample.judged).any()):
        raise WireError("the label holder asks about rows whose labels it told, which proves nothing")
    return sample, _targets(told, len(sample.told), task)


def _targets(told: Tensor, rows: int, task: Task) -> Tensor:
    shape = (rows,) if task.exclusive else (rows, task.outputs)
    codes = told.to(torch.int64)
    if told.is_floating_point() or tuple(told.shape) != shape:
        raise WireError(f"the label holder told labels of shape {tuple(told.shape)}; needed {shape}")
    if int(codes.min()) < 0 or int(codes.max()) >= (task.outputs if task.exclusive else 2):
        raise WireError("the label holder told labels of classes that do not exist")
    return task.expand(codes, torch.float64)


def answer(
    name: str, party: str, columns: Tensor, payload: bytes, task: Task, ledger: Ledger, seed: int = 0
) -> Release:
    """Learn from the noisy labels, score the rows, and release the scores through the candidate's own gate.

    Args:
        name: of the federation or run.
        party: the candidate.
        columns: (N, ...) by row number, on a common scale.
        payload: the question.
        task: what was agreed that labels are.
        ledger: of the candidate.
        seed: of folds and models; the same seed gives the same answer.
    """
    sample, targets = read_question(payload, name, party, len(columns), task)
    x = columns.to(torch.float32)
    levels = as_levels(mean_of_folds(task, x[sample.told], targets, x[sample.judged], seed), party)
    new = Ledger()
    gate = Gate(name, new, {SCORES: Array(task.outputs, torch.uint8)})
    passed = gate.release(Upload({SCORES: levels[None]}), (party,), NUMBER, Purpose.EVALUATE, len(levels))
    for entry in new:
        if not ledger.holds(entry.digest):  # the same question is answered with the same bytes: one release
            ledger.record(entry)
    return passed.releases[0]


def as_levels(scores: Tensor, party: str) -> Tensor:
    """(B, K) bytes: 0 to 255 between the ends of these scores (B, K), each output by itself."""
    if not bool(torch.isfinite(scores).all()):
        raise ModelError(f"party {party!r} made scores that are not finite; look at its columns")
    ends = torch.quantile(scores.double(), torch.tensor([CUT, 1 - CUT], dtype=torch.float64), dim=0)
    low, width = ends[0], (ends[1] - ends[0]).clamp(min=1e-300)
    share = ((scores.double() - low) / width).clamp(0, 1)
    return (share * LEVELS).round().to(torch.uint8)


def read_answer(payload: bytes, name: str, party: str, rows: int, outputs: int) -> Tensor:
    """(rows, outputs) bytes of a candidate.

    Raises:
        WireError: it is anything but that many bytes of this candidate.
    """
    header, arrays = decode(payload, limit=rows * outputs + HEAD)
    _check_head(header, name, party)
    return _levels(arrays, party, rows, outputs)


def _check_head(header: Header, name: str, party: str) -> None:
    wanted = {"run": name, "number": NUMBER, "kind": Purpose.EVALUATE.value, "sender": party}
    strange = next((key for key, value in wanted.items() if header.get(key) != value), None)
    if strange is not None:
        raise WireError(f"party {party!r} sent an answer whose {strange} is not what it was asked for")


def _levels(arrays: Mapping[str, Tensor], party: str, rows: int, outputs: int) -> Tensor:
    if set(arrays) != {SCORES}:
        raise WireError(f"party {party!r} sent {len(arrays)} arrays; needed its scores and nothing else")
    found = arrays[SCORES]
    if found.dtype != torch.uint8 or tuple(found.shape) != (rows, outputs):
        raise WireError(
            f"party {party!r} sent scores of {found.dtype} and shape {tuple(found.shape)}; needed bytes, one for each "
            f"of {rows} rows and {outputs} outputs"
        )
    return found
