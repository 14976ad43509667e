"""Policy: what a party's operator allows, whatever a label holder proposes.

    # policy.toml; every line is optional
    methods = ["vimadmm"]          # empty: any
    most_rounds = 500
    fewest_rows = 1000

A party checks every proposal and every question against it, by itself, before it computes anything. A refusal
says which rule, what was asked, what is allowed, and which line would have to change.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, PrivateAttr

from colonnade.config import Settings, build, read_toml
from colonnade.deploy.withdrawal.waiting import WithdrawalLimit
from colonnade.errors import ConfigError, Refused
from colonnade.methods import METHODS
from colonnade.privacy.accounting import Neighbours
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.registry import kind_of
from colonnade.privacy.training_rows import WHY
from colonnade.wire.messages import Purpose
from colonnade.wire.numbers import NumberFormat


class Policy(Settings):
    """What a party's operator allows."""

    methods: tuple[str, ...] = Field((), description="training methods that may be used; empty: any")
    purposes: tuple[Purpose, ...] = Field(
        (Purpose.TRAIN, Purpose.EVALUATE, Purpose.PREDICT), description="what releases may be for; empty: nothing"
    )
    most_rounds: int = Field(0, ge=0, description="rounds of one training; 0: no limit")
    fewest_rows: int = Field(1, ge=1, description="aligned rows that a run needs; small sets expose people")
    most_rows_per_prediction: int = Field(0, ge=0, description="rows of one prediction; 0: no limit")
    predict_training_rows: bool = Field(
        False, description="after training with noise, rows that trained may be predicted, which none protects"
    )
    label_exposure: tuple[str, ...] = Field(
        (), description="how much a method may tell this party about the labels: FULL, EPS, NONE; empty: anything"
    )
    require_mechanism: tuple[str, ...] = Field(
        (), description="protections of which training must use one, by name; empty: any, or none"
    )

    unit: tuple[Literal["PARTY", "ROW"], ...] = Field(
        (), description="units of which training must hide one: PARTY, ROW; empty: any, or none"
    )
    neighbours: tuple[Neighbours, ...] = Field(
        (), description="worlds that noise of unit PARTY may be calibrated for: absent, replaced; empty: any"
    )
    numbers: tuple[NumberFormat, ...] = Field(
        (), description="numbers in which uploads may travel: full, float32, float16, int8; empty: any"
    )
    most_epsilon: float = Field(
        0.0, ge=0, description="what all trainings together may cost the table, in each unit; 0: no limit"
    )
    most_delta: float = Field(1e-5, gt=0, lt=1, description="delta of that epsilon, and the largest of a proposal")
    most_predictions_per_row: int = Field(
        0, ge=0, description="how often a row of the table may be predicted, over all runs; 0: no limit"
    )
    require_secure_sum: bool = Field(False, description="only the sum of all parties' uploads may be opened")
    shows_columns: bool = Field(
        False, description="this party belongs to the label holder, and a run whose guest it is may send columns there"
    )
    tells_sides: bool = Field(
        False, description="a run whose guest it is may tell every party on which side of a median its columns are"
    )

    alignments_per_day: int = Field(
        0,
        ge=0,
        description="alignments in 24 hours that `colonnade serve` takes part in by itself: each tells the label "
        "holder which of its ids this party has; 0: a person starts each, with `colonnade align`",
    )

    approval: bool = Field(False, description="a person must approve every run: `colonnade approve`")
    approval_above_epsilon: float = Field(
        0.0,
        ge=0,
        description="a person must approve a run whose training costs more (of what, as for most_epsilon), or that has "
        "no noise; 0: no such rule",
    )

    withdrawal: WithdrawalLimit = WithdrawalLimit()

    _file: str = PrivateAttr("")
    _lines: dict[str, int] = PrivateAttr(default_factory=dict)  # key -> where it stands in the file

    def where(self, key: str, value: object) -> str:
        """What to write where, so that the next proposal passes."""
        line = f"`{key} = {json.dumps(value)}`"
        if not self._file:
            return f"to allow it, put {line} into a policy file and name that in party.toml"
        if key in self._lines:
            return f"to allow it, line {self._lines[key]} of {self._file} would have to be {line}"
        return f"to allow it, {self._file} would have to say {line}"


def read_policy(path: Path | None) -> Policy:
    """The policy of a file, or the built-in one.

    Raises:
        ConfigError: the file is missing or not TOML, or a key, a type or a method's name is wrong.
    """
    if path is None:
        return Policy()
    policy = build(Policy, read_toml(path), f"policy, {path.name}")
    for name in policy.methods:
        if name not in METHODS:
            close = difflib.get_close_matches(name, METHODS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(METHODS)}"
            raise ConfigError(f"{path.name} allows the method {name!r}, which does not exist; {hint}")
    policy._file = path.name
    text = path.read_text(encoding="utf-8").splitlines()
    found = ((number, re.match(r"\s*[\"']?(\w+)[\"']?\s*=", line)) for number, line in enumerate(text, start=1))
    policy._lines = {key[1]: number for number, key in found if key}
    return policy


def check_run(policy: Policy, description: Mapping[str, Any]) -> None:
    """Refuse a run that the policy does not allow; a description that does not say what it must is refused too.

    Args:
        policy: the operator's.
        description: what the label holder proposes: `method` (with its `name`), `label_exposure`, `training` (with its
            `rounds`), `rows`, `purposes`, `mechanism`, `privacy` and, read here, `numbers`. What it costs is
            `budget.check_table`'s.

    Raises:
        Refused: with the rule, what was asked, what is allowed and which line to change.
    """
    _among(policy, "methods", "the method", _said(description, str, "method", "name"))
    _among(policy, "label_exposure", "the label exposure", _said(description, str, "label_exposure"))
    purposes = _said(description, list, "purposes")
    if not purposes:
        raise Refused("purposes: the run's description names none; a run is for something")
    for purpose in purposes:
        _check_purpose(policy, purpose)
    _at_most(policy, "most_rounds", "rounds", _said(description, int, "training", "rounds"))
    rows = _said(description, int, "rows")
    if rows < policy.fewest_rows:
        raise Refused(
            f"fewest_rows: the run has {rows:,} aligned rows, the policy needs {policy.fewest_rows:,} or more; "
            + policy.where("fewest_rows", max(rows, 1))
        )
    if Purpose.TRAIN.value in purposes:
        _among(policy, "require_mechanism", "the protection", _said(description, str, "mechanism"))
        _check_promise(policy, description)
    if policy.require_secure_sum and not _said(description, bool, "privacy", "secure_sum", "use"):
        raise Refused(
            "require_secure_sum: uploads would be opened one by one, the policy needs only their sum to be; "
            + policy.where("require_secure_sum", False)
        )


def _check_promise(policy: Policy, description: Mapping[str, Any]) -> None:
    """What the epsilon of a proposal must be like; how large it may be is for the whole table to say."""
    if policy.numbers:
        _among(policy, "numbers", "the number format", _said(description, str, "numbers"))
    if policy.neighbours and not kind_of(_said(description, str, "privacy", "mechanism")).bare:
        _among(policy, "neighbours", "the neighbouring relation", _said(description, str, "privacy", "neighbours"))
    if not policy.most_epsilon:
        return
    delta = _said(description, float, "privacy", "delta")
    if delta > policy.most_delta:
        raise Refused(
            f"most_delta: the promised epsilon holds with delta {delta:g}, the policy allows {policy.most_delta:g}; "
            + policy.where("most_delta", delta)
        )


def check_prediction(policy: Policy, rows: int, purpose: str) -> None:
    """Refuse a question about rows that the policy does not allow.

    Raises:
        Refused: with the rule, what was asked, what is allowed and which line to change.
    """
    _check_purpose(policy, purpose)
    _at_most(policy, "most_rows_per_prediction", "rows in one prediction", rows)


def check_repeats(policy: Policy, before: int) -> None:
    """Refuse to predict rows of which one was predicted so often before.

    Raises:
        Refused: with the rule, what was asked, what is allowed and which line to change.
    """
    most = policy.most_predictions_per_row
    if most and before + 1 > most:
        raise Refused(
            f"most_predictions_per_row: a row would be predicted for the {before + 1:,}. time, the policy allows "
            f"{most:,}; " + policy.where("most_predictions_per_row", before + 1)
        )


def check_columns(policy: Policy, shown: str, told: bool = False) -> None:
    """Refuse to be the guest of a run in which the guest shows something of its columns, unless the policy allows it.

    Args:
        policy: the operator's.
        shown: what, in words; empty: nothing.
        told: whether the label holder passes it on to every party.

    Raises:
        Refused: with the rule and which line to change.
    """
    if told:
        if shown and not policy.tells_sides:
            raise Refused(
                f"tells_sides: the run names this party as the label holder's own, and tells every party {shown}, row "
                "by row, which the policy does not allow; " + policy.where("tells_sides", True)
            )
        return
    if shown and not policy.shows_columns:
        raise Refused(
            f"shows_columns: the run names this party as the label holder's own, which shows {shown} to it, and the "
            "policy does not say that both are one organisation; " + policy.where("shows_columns", True)
        )


def check_question(policy: Policy, rows: int) -> None:
    """Refuse a question before any training (`colonnade worth`), which takes one score per row without noise.

    Raises:
        Refused: with the rule, what was asked, what is allowed and which line to change.
    """
    _check_purpose(policy, Purpose.EVALUATE.value)
    _among(policy, "label_exposure", "the label exposure", LabelExposure.EPS.value)
    if rows < policy.fewest_rows:
        raise Refused(
            f"fewest_rows: the question is about {rows:,} aligned rows, the policy needs {policy.fewest_rows:,} or "
            "more; " + policy.where("fewest_rows", max(rows, 1))
        )
    bare = "one score per row would leave as it is"
    if policy.require_mechanism:
        raise Refused(f"require_mechanism: {bare}; " + policy.where("require_mechanism", []))
    if policy.most_epsilon:
        raise Refused(f"most_epsilon: {bare}, which has no bound at all; " + policy.where("most_epsilon", 0))
    if policy.require_secure_sum:
        raise Refused(f"require_secure_sum: {bare}; " + policy.where("require_secure_sum", False))


def check_training_rows(policy: Policy, rows: int) -> None:
    """Refuse a question about rows that trained with noise, unless the policy allows it.

    Raises:
        Refused: with the rule and which line to change.
    """
    if rows and not policy.predict_training_rows:
        raise Refused(
            f"predict_training_rows: {rows:,} of the rows trained this run, and predicting them {WHY}; "
            + policy.where("predict_training_rows", True)
        )


def _check_purpose(policy: Policy, asked: object) -> None:
    allowed = [purpose.value for purpose in policy.purposes]
    if asked in allowed:
        return
    known = [purpose.value for purpose in Purpose]
    if asked not in known:
        raise Refused(f"purposes: {_short(asked)} was asked for, which is no purpose; known: {', '.join(known)}")
    raise Refused(
        f"purposes: {asked} was asked for, the policy allows {', '.join(allowed) or 'none'}; "
        + policy.where("purposes", [*allowed, asked])
    )


def _among(policy: Policy, key: str, what: str, asked: str) -> None:
    allowed = list(getattr(policy, key))
    if allowed and asked not in allowed:
        raise Refused(
            f"{key}: {what} {_short(asked)} was asked for, the policy allows {', '.join(allowed)}; "
            + policy.where(key, [*allowed, asked[:64]])
        )


def _at_most(policy: Policy, key: str, what: str, asked: int) -> None:
    most = int(getattr(policy, key))
    if most and asked > most:
        raise Refused(
            f"{key}: {asked:,} {what} were asked for, the policy allows {most:,}; " + policy.where(key, asked)
        )


T = TypeVar("T", str, int, float, bool, list[Any])


def _said(description: Mapping[str, Any], kind: type[T], *path: str) -> T:
    """A value of the description, which came over the wire."""
    value: Any = description
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise Refused(
            f"the run's description does not say {'.'.join(path)!r} as it must; the label holder's version of "
            "Colonnade may differ from this party's"
        )
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:61]}..."
