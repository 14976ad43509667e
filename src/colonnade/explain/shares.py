"""A party's share of the score, as a function of its columns. It is computed at home: nothing leaves for it.

    of a part     the party's own outputs, where it owns its head: what it uploads
    of a model    its term of the score, with the coordinator's part: also where heads are at the coordinator

In float64 on the CPU, whatever the training had, so that sums of many small numbers hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from colonnade.design import Design
from colonnade.engines.stacked import Stacked
from colonnade.errors import ConfigError
from colonnade.explain.contributions import numbered
from colonnade.methods.base import GivesPoints, Method, State, Traceable, Uploads
from colonnade.model import Model
from colonnade.models.cohort import Cohort
from colonnade.models.crossfit import CrossFit
from colonnade.models.increments import Increments
from colonnade.models.local import Regressors
from colonnade.models.stack import Mode
from colonnade.part import Part, open_parts
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.randomness import stream

OUTPUTS = "o"  # what methods call a party's own outputs
TRIED = 16  # made-up rows on which it is tried whether a score is a sum
SUM_TOLERANCE = 1e-9  # of float64, relative to the largest output
EXACT = {"dtype": "float64", "precision": "float32", "compile": False, "device": "cpu"}


@dataclass(frozen=True)
class Share:
    """What a party adds to the score: outputs (B, K) of its columns (B, ...), as its plan encodes them."""

    party: str
    of: str  # in words
    places: Mapping[str, tuple[int, ...]] = field(repr=False)  # where its columns stand among the encoded ones
    cohort: Cohort = field(repr=False)  # the party alone
    output: Callable[[Tensor], Tensor] = field(repr=False)  # of columns (1, B, ...) on the scale of the local model
    start: Tensor | None = field(repr=False)  # (...) the mean training row; None: not known
    own: bool  # it is the local model's own output, which a regressor may explain itself

    def __call__(self, columns: Tensor) -> Tensor:
        """(B, K) of columns (B, ...) in float64; with gradients where the local model has them."""
        return self.output(self.cohort.scale_columns(columns[None]))

    @property
    def regressor(self) -> object | None:
        """The local model, where it is no network and its outputs are the share."""
        encoder = self.cohort.encoder
        if not self.own:
            return None
        if isinstance(encoder, (CrossFit, Increments)):
            return encoder.explained()
        return encoder.members[0] if isinstance(encoder, Regressors) else None


def share_of_part(part: Part) -> Share:
    """What a party can compute alone.

    Raises:
        ConfigError: its upload is no score: the head is at the coordinator, or the method cannot be traced.
    """
    method = _traceable(part.design.method, part.party)
    _check_columns(part)
    cohort = _opened(part.design, [part]).sides[0].cohort
    if OUTPUTS not in method.computed(cohort, cohort.whole, Mode.PREDICT):
        raise ConfigError(
            f"{part.design.method.name} keeps the heads at the coordinator: what party {part.party!r} computes is an "
            "embedding, and without its head nobody can say what a column adds to the score; ask where the whole model "
            "is (model.contributions(table, party=...)), or train vimadmm_j or linear_admm, whose parties own theirs"
        )
    width = method.computed(cohort, cohort.whole, Mode.PREDICT)[OUTPUTS].shape[-1]
    if width != part.design.task.outputs:
        raise ConfigError(
            f"the scores of party {part.party!r} are lifted: what they add turns on sides of the guest's columns, "
            "which it does not know, so that it cannot say what a column adds; train without lifts"
        )
    told = f"the outputs of party {part.party!r}, before any weight that the coordinator gives them"

    def output(x: Tensor) -> Tensor:
        return method.computed(cohort, x, Mode.PREDICT)[OUTPUTS][0]

    return Share(part.party, told, places_of(part), cohort, output, mean_row(part), not cohort.encoder.gradients)


def share_in_model(model: Model, party: str) -> Share:
    """A party's term of the score, where all parts of a model are in one place.

    Raises:
        ConfigError: there is no such party, or scores are no sums over the parties.
    """
    part = model.part(party)
    method = _traceable(model.method, party)
    _check_columns(part)
    engine = _opened(model.design, list(model.parts.values()))
    group, place = engine.schema.position(party)
    cohort = engine.sides[group].cohort.pick([place])
    state = in_float64(model.state)
    check_sum(model.method, state, engine)
    scale = state.get("target.scale", torch.ones((), dtype=torch.float64))

    def output(x: Tensor) -> Tensor:
        silent = _silence(engine, model.method, x.shape[1])
        mine = method.computed(cohort, x, Mode.PREDICT)
        others = silent[group]
        put = {
            name: torch.cat([others[name][:place], mine[name], others[name][place + 1 :]])
            for name in others
        }  # fmt: skip
        groups = [*silent[:group], put, *silent[group + 1 :]]
        return (_predicted(model.method, state, groups) - _predicted(model.method, state, silent)) * scale

    told = f"the term of party {party!r} in the score"
    return Share(party, told, places_of(part), cohort, output, mean_row(part), own=False)


def places_of(part: Part) -> dict[str, tuple[int, ...]]:
    """Where the columns of a party's table stand among the numbers of a row; without a table, each number by itself."""
    plan = part.plans.get(part.party)
    return plan.places if plan is not None else numbered(int(torch.Size(part.shape).numel()))


def mean_row(part: Part) -> Tensor | None:
    """(...) the mean training row as the party keeps it: with its column plan, or as the shift of its scaling."""
    plan, shift = part.plans.get(part.party), part.tensors.get("scaling.shift")
    if plan is not None:
        return plan.mean
    return None if shift is None else shift.to(torch.float64, copy=True)


def check_sum(method: Method, state: State, engine: Stacked) -> None:
    """Refuse a method whose score is no sum of the parties' terms; tried on made-up uploads, not assumed."""
    drawn, silent = [], _silence(engine, method, TRIED)
    for number, group in enumerate(silent):
        rng = stream(0, "explain sum", number=number)
        drawn.append({name: torch.from_numpy(rng.normal(size=tuple(v.shape))) for name, v in group.items()})
    whole, nobody = _predicted(method, state, drawn), _predicted(method, state, silent)
    total = nobody.clone()
    for at, group in enumerate(drawn):
        for place in range(len(next(iter(group.values())))):
            one = {name: silent[at][name].clone() for name in group}
            for name, value in group.items():
                one[name][place] = value[place]
            total += _predicted(method, state, [*silent[:at], one, *silent[at + 1 :]]) - nobody
    if float((total - whole).abs().max()) > SUM_TOLERANCE * (1 + float(whole.abs().max())):
        raise no_sum(method)


def no_sum(method: Method) -> ConfigError:
    """What is told where scores are no sums over the parties."""
    return ConfigError(
        f"the score of this {method.name} model is no sum over the parties: it mixes what they upload, and no numbers "
        "per party add up to it; colonnade explain RUN measures what each party contributes to the quality of the model"
    )


def in_float64(state: Mapping[str, Tensor]) -> State:
    """The coordinator's part, to compute with in float64 on the CPU."""
    return {k: v.detach().cpu().double() if v.is_floating_point() else v.cpu() for k, v in state.items()}


def _traceable(method: Method, party: str) -> Traceable:
    if method.pools:
        raise ConfigError(f"{method.name} has all columns in one place, and party {party!r} is nobody's")
    if isinstance(method, GivesPoints):
        raise ConfigError(
            f"what the columns of party {party!r} add to a score stands on its card, bin by bin: colonnade scorecard "
            "FOLDER, or PartyCard.of(part)"
        )
    if not isinstance(method, Traceable):
        raise ConfigError(
            f"uploads of {method.name} cannot be traced back to columns; of the built-in methods use vimadmm_j, "
            "linear_admm, vimadmm, fdml or local_only"
        )
    return method


def _check_columns(part: Part) -> None:
    part.check()
    if part.party in part.design.tokens:
        raise ConfigError(
            f"the columns of party {part.party!r} are tokens, of which there is no mean row to start from"
        )


def _opened(design: Design, parts: list[Part]) -> Stacked:
    """The parties with what they learned, without rows; nothing is asked of their gates, so the ledger stays empty."""
    exact = replace(design, arithmetic=design.arithmetic.model_copy(update=EXACT))
    alike = [replace(part, design=exact) for part in parts]
    engine = open_parts(exact, alike, Ledger(), Protection())
    for side in engine.sides:
        for tensors in (side.cohort.scaling, side.cohort.head):
            tensors.update({name: value.detach().double() for name, value in tensors.items()})
    return engine


def _silence(engine: Stacked, method: Method, rows: int) -> list[dict[str, Tensor]]:
    """Zeros in place of every upload, by group."""
    groups = []
    for group in engine.schema.groups:
        arrays = method.upload_arrays(engine.schema, group)
        groups.append({k: torch.zeros(len(group.parties), *a.shape(rows)).double() for k, a in arrays.items()})
    return groups


def _predicted(method: Method, state: State, groups: list[dict[str, Tensor]]) -> Tensor:
    return method.predict(state, Uploads(tuple(groups)))
