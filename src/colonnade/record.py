"""The record of a run: what `run.json` holds, by name and type. Written by `Run.record`, read by whoever tells of runs.

Keys that some version did not write are `NotRequired`: whoever reads them says what their absence means. Keys never
change their meaning, so that a folder of any version can be read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from colonnade.errors import RunError
from colonnade.folder import in_use

if sys.version_info >= (3, 11):
    from typing import NotRequired, Required
else:  # Python 3.10
    from typing_extensions import NotRequired, Required

FORMAT, RECORD, STORE = 1, "run.json", "run.db"

Section = Mapping[str, Any]  # one section of a configuration file as read, before it is checked
Sections = Mapping[str, Section]  # by name: `data`, `method`, ...


class PartyAbout(TypedDict):
    """A party, and the shape of a row of its columns as its network reads them."""

    name: str
    shape: list[int]
    integers: NotRequired[bool]  # they came as whole numbers


class RowCounts(TypedDict):
    """How many rows train, choose the model, and test it."""

    train: int
    validation: int
    test: int


class Partial(TypedDict):
    """How many training rows are complete, have a label, and are held by each party."""

    complete: int
    labelled: int
    held: dict[str, int]


class Machine(TypedDict):
    """What rounding depends on, besides the numbers."""

    python: str
    torch: str
    device: str
    threads: int
    instructions: NotRequired[str]
    libraries: NotRequired[dict[str, str]]  # that grow local models, and their versions


Positive = TypedDict("Positive", {"class": str, "why": str})  # which class of yes/no counts as yes, by which rule


class TaskAbout(TypedDict):
    """A task (`Task.about`)."""

    task: str
    outputs: int
    class_names: NotRequired[list[str]]
    class_kind: NotRequired[str]
    positive: NotRequired[Positive]


class Regrouped(TypedDict):
    """A party that left a finished model, or joined one; those who were there neither trained nor sent anything."""

    party: str
    when: str  # date and time in UTC
    run: str  # id of the run before
    present: list[str]  # who else was there


class Joined(Regrouped):
    """What the party got and sent that joined."""

    labels: str  # how those that it got were protected, as the ledger calls it
    rows: int  # of how many rows it got labels and sent scores


class About(TaskAbout):
    """Federation, engine and machine of a run."""

    federation: str
    parties: list[PartyAbout]
    groups: list[list[str]]
    rows: RowCounts
    partial: NotRequired[Partial]
    row_weights: NotRequired[bool]
    stratified: NotRequired[bool]  # classes were counted to split the rows
    data: NotRequired[str]
    own_code: NotRequired[Mapping[str, Any]]  # of `engines.own_code.OwnCode`, where some of it is not ours
    joined: NotRequired[list[Joined]]  # after the training
    left: NotRequired[list[Regrouped]]  # likewise
    engine: str
    ways: Sequence[str]
    machine: Machine


class Measured(TypedDict):
    """One metric on the test rows, its bootstrap interval, and what a constant guess would have."""

    test: float | None
    interval: list[float] | None
    baseline: float | None


class Decisions(TypedDict):
    """Which classes were decided for which (true x predicted), accuracy per class, and its standard deviation."""

    confusion: list[list[int]]
    class_accuracy: list[float]
    class_accuracy_std: float


class GroupMeasured(TypedDict):
    """One metric on the rows of a group, and its 95 % interval."""

    value: float | None
    interval: list[float] | None


class GroupScores(TypedDict):
    """How good a model is on one group; `small`: too few rows to compare."""

    rows: int
    small: bool
    metrics: dict[str, GroupMeasured]


class ByGroup(TypedDict):
    """Every metric by the groups of a column of the label holder's."""

    column: str
    groups: dict[str, GroupScores]


class DecisionTold(TypedDict):
    """What was fitted on validation rows, and errors of probabilities on test rows [before, after] calibration."""

    decide_by: str
    threshold: float
    calibration: str
    validation_rows: int
    brier: list[float]
    calibration_error: list[float]


class ScoreBins(TypedDict):
    """Rows in bins from the lowest probability to the highest; lists of equal length."""

    rows: list[int]
    yes: list[float]  # how many rows are what the probability is of, or their weights
    no: list[float]
    mean: list[float]  # probability
    lowest: list[float]  # probability, rounded


class NumberBins(TypedDict):
    """Rows in bins from the lowest prediction to the highest; means, but for `spread`: the residuals' deviation."""

    rows: list[int]
    predicted: list[float]
    actual: list[float]
    residual: list[float]
    spread: list[float]


class Histogram(TypedDict):
    """How many rows lie between two neighbouring edges; the first bin has no lower end, the last one no upper."""

    edges: list[float]  # one fewer than bins
    rows: list[int]


class NumberBinned(TypedDict):
    """One number or count that is predicted. Residuals: actual - predicted; of counts those of the deviance."""

    bins: NumberBins
    residuals: Histogram
    quantiles: list[list[float]]  # of the residuals: [share of the rows below, value]


class KindScores(TypedDict):
    """One class against the rest, or one of several labels; None: undefined, or of too few rows."""

    rows: int | None
    precision: float | None
    recall: float | None
    f1: float | None
    auc: float | None


class Binned(TypedDict, total=False):
    """What pictures need of the test rows (`evaluate.binned`): nothing in it is of fewer than `fewest` rows."""

    fewest: Required[int]
    left_out: str  # why there is nothing else
    scores: ScoreBins  # yes/no: by the probability of a yes
    top: ScoreBins  # classes: by the probability of the class that was decided for; yes: it was right
    each: list[KindScores]  # classes and labels, in their order
    numbers: list[NumberBinned]  # the first few
    deviance: bool  # residuals are those of the deviance


class LiftGain(TypedDict):
    """What lifted scores add to their plain parts on the test rows (`engines/lift_gain.py`)."""

    metric: str
    plain: float
    lifted: float
    difference: float
    interval: list[float] | None  # 95 %, of the difference
    rows: int


class OnTest(TypedDict, total=False):
    """What the test rows say of the kept model; a version that did not measure something has no such key."""

    metric: str
    test_score: Required[float | None]
    test_interval: list[float] | None
    baseline_score: float | None
    metrics: dict[str, Measured]
    test_accuracy: float | None
    baseline_accuracy: float | None
    baseline_class: int
    confusion: list[list[int]]
    class_accuracy: list[float]
    class_accuracy_std: float
    warnings: list[str]
    by_group: ByGroup
    decision: DecisionTold
    binned: Binned
    absent: list[str]  # who did not answer, so that there is no score
    lifts: LiftGain
    uploads: Mapping[str, Any]  # `privacy.promise.UploadGain`: measured after the training


class Result(OnTest):
    """How a training ended and how good its kept model is."""

    rounds: int
    stop: str
    diverged: bool
    best_round: int | None
    validation_score: float | None
    validation_metric: NotRequired[str]
    validation_metrics: NotRequired[dict[str, float | None]]
    seconds: float


class Round(TypedDict, total=False):
    """One round of the history: what the method noted (primal, dual, ...), and the score where it was evaluated."""

    round: Required[int]
    seconds: float
    score: float
    primal: float
    dual: float
    batch_accuracy: float
    absent: list[str]
    steps: dict[str, int]


class TrafficRound(TypedDict):
    """Bytes of one round: of training up and down by party, and of evaluation."""

    number: int
    up: list[int]
    down: list[int]
    multicast_down: int
    evaluation_up: int
    evaluation_down: int


class TrafficRecord(TypedDict):
    """Bytes of a run."""

    up: int
    down: int
    multicast: int
    evaluation: int
    per_party: dict[str, dict[str, int]]
    rounds: list[TrafficRound]


class MethodRecord(TypedDict):
    """A method by name, with its settings."""

    name: str
    settings: dict[str, object]


class RunRecord(TypedDict):
    """What `run.json` holds; a report adds what lies beside it."""

    format: int
    id: str
    about: About
    method: MethodRecord
    model: Mapping[str, Any]
    own_encoders: bool
    training: Mapping[str, Any]
    result: Result
    fingerprint: str
    label_exposure: str
    privacy: NotRequired[Mapping[str, Any]]
    history: list[Round]
    traffic: TrafficRecord
    releases: Sequence[Sequence[Any]]  # owner, purpose, how many
    mechanisms: NotRequired[list[str]]
    tally: NotRequired[list[Any]]  # of `privacy.tally.TallyRecord`
    config: Sections | None
    columns: NotRequired[str]  # digest of columns.skops
    decision: NotRequired[Mapping[str, Any]]  # `evaluate.decision.Decision`, where one was fitted
    explanation: NotRequired[Mapping[str, Any]]  # explain.json, where there is one
    unexplained: NotRequired[str]  # why it cannot be used
    withdrawn: NotRequired[str]  # a sentence about people who withdrew since, where it trained with their rows


class TrialRecord(TypedDict):
    """One line of `Worth`: means over its runs, which differ in their seed."""

    role: str  # alone, joint or central
    who: str
    runs: list[str]  # ids
    method: str
    columns: int
    score: float | None
    interval: list[float] | None
    validation: float | None


class Difference(TypedDict):
    """Of two scores on the same test rows; `paired`: measured row by row, else put together from two intervals."""

    value: float
    interval: list[float] | None
    paired: bool


class Worth(TypedDict):
    """Is it worth joining? What `worth.json` beside the runs holds."""

    format: int
    metric: str
    rows: int  # test rows
    trials: list[TrialRecord]
    best: str | None  # who to compare with: the best alone by its validation score
    gain: Difference | None  # joint minus best alone
    price: Difference | None  # central minus joint
    notes: list[str]


class Described(TypedDict):
    """What the store of a run says it is: enough to open it again. Between organisations it holds more."""

    id: str
    method: MethodRecord
    training: Mapping[str, Any]
    model: Mapping[str, Any]
    privacy: NotRequired[Mapping[str, Any]]
    own_encoders: bool
    data: str
    ways: Sequence[str]
    config: Sections | None
    about: About


def read_record(folder: Path) -> RunRecord:
    """The record of a saved run, or one sentence about what is wrong with the folder."""
    if not folder.is_dir():
        raise RunError(f"{str(folder)!r} is not a run folder; colonnade train makes one")
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if busy := in_use(folder):
            raise RunError(f"{busy}; wait until it is done") from None
        unfinished = (folder / STORE).exists()
        hint = f"it was interrupted: run colonnade resume {folder}" if unfinished else "it is not a run folder"
        raise RunError(f"{folder} has no {RECORD}; {hint}") from None
    except ValueError as error:
        raise RunError(f"{folder / RECORD} is damaged ({error}); restore it from a copy") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise RunError(f"{folder / RECORD} is not a run of format {FORMAT}")
    return cast(RunRecord, record)
