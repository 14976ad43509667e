"""VIMADMM-J (Xie et al., Algorithm 2): no model splitting; every party owns its head.

    party        o_k = f(x_k) W_k                                                   up: b x d_c
    coordinator  z, lambda as in VIMADMM, from the sum of the o_k alone             (update_z_wosplit)
                 down: v = z - yhat - lambda/rho, one b x d_c matrix for all
    party        tau times: a step on W_k, then a step on theta_k, towards          (update_W_wosplit)
                 u_k = v + o_k, the logits as they were sent                        (update_theta_wosplit)

With `lifts = G` the score also has what shows only together with G columns of the guest, the label holder's own party:

    yhat = sum_k ( o_k0 + sum_g phi_g o_kg )         phi_g = +1 or -1, from the guest's columns      (lifted)

A party's output o_k has 1 + G blocks of d_c. That is Algorithm 2 with a block (k, g) in the place of a party: its term
phi_g o_kg is asked to move by d v, and because phi_g^2 = 1 that is

    rho/2d |phi_g o_kg - (phi_g o_kg as sent + d v)|^2 = rho/2d |o_kg - (o_kg as sent + d phi_g v)|^2

a plain least-squares target for o_kg. With d = damping / (1 + G) the 1 + G blocks of a party together move the sum by
damping v, as its one output does without lifts. Up go (1 + G) d_c numbers a row, down v and the sides, a byte each.

The coordinator needs only the total of the logits, so a secure sum can stand in the way (not with lifts: sides are one
party's). The paper alternates head and encoder inside a local step; its program takes one backward pass for both:
`alternate` chooses. Alternating with momentum on both diverges within five rounds at the published
step size (MNIST, digits), so the preset steps the head with plain SGD, as Algorithm 1 steps its
heads. Labels: as VIMADMM, v gives them away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.admm.step import residuals, update_dual, update_z
from colonnade.config import Settings
from colonnade.methods import _lifts
from colonnade.methods._convolutions import FOR_CONVOLUTIONS, LOCAL_OPTIMISER
from colonnade.methods._steps import check_damping, local_steps, published
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.approach import Effort, approach
from colonnade.models.cohort import Cohort
from colonnade.models.heads import apply_heads, dropout_keys
from colonnade.models.optimise import SGD, AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.randomness import dropout_key
from colonnade.schedule import RoundPlan

# lr, tau, rho of the paper's experiments
PUBLISHED = {
    "mnist": (0.1, 20, 1.0),
    "cifar10": (0.005, 30, 2.0),
    "nus_wide": (0.1, 20, 2.0),
    "modelnet40": (0.1, 3, 0.1),
}


class VIMADMMJ(Settings):
    """Every party owns its head and sends logits; only their sum is needed (Algorithm 2)."""

    name: ClassVar[str] = "vimadmm_j"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False
    lacking: ClassVar[bool] = True
    convolutional: ClassVar[Optimiser] = FOR_CONVOLUTIONS
    passes_on: ClassVar[bool] = True

    rho: float = Field(1.0, gt=0, description="weight of the agreement penalty")
    local_steps: int = Field(20, ge=1, description="gradient steps a party takes per round (tau)")
    optimiser: Optimiser = Field(AdamW(lr=1e-3, weight_decay=1e-3), description=LOCAL_OPTIMISER)
    alternate: bool = Field(False, description="step the head, then the encoder (paper), or both at once (its program)")
    head_momentum: float | None = Field(
        None, ge=0, lt=1, description="momentum of the head's own steps, with alternate; unset: the optimiser's"
    )
    damping: float | None = Field(
        None, gt=0, le=1, description="share of the residual each party removes; 1: paper; unset: 1/sqrt(M)"
    )
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing: weight spread evenly over all classes")
    lifts: int = Field(
        0,
        ge=0,
        le=64,
        description="how many of the guest's columns turn every score by the side of the median they are on",
    )
    guest: str | None = Field(
        None,
        description="with lifts, the label holder's own party; unset: the one whose table has the labels, in a "
        "simulation from tables",
    )

    @property
    def shows(self) -> str:
        """What the guest tells of its columns."""
        return f"the sides of the median that {self.lifts} of its columns are on" if self.lifts else ""

    @classmethod
    def paper(cls, dataset: str = "mnist") -> VIMADMMJ:
        """The published settings."""
        lr, tau, rho = published(PUBLISHED, dataset)
        sgd = SGD(lr=lr, momentum=0.9, weight_decay=1e-3)
        return cls(rho=rho, local_steps=tau, optimiser=sgd, alternate=True, head_momentum=0.0, damping=1.0)

    def open_party(self, cohort: Cohort) -> None:
        """Each party draws its own head; the guest cuts its columns."""
        cohort.own_heads(1 + self.lifts)
        if self._is_guest(cohort.names):
            _lifts.open_sides(cohort, self.lifts)

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """A zero dual for every row."""
        check_damping(self.damping, len(schema.parties))
        return {"dual": schema.zeros(schema.rows, schema.outputs)}, None

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        wide = {"o": Array(schema.outputs * (1 + self.lifts))}
        return wide | (_lifts.sides_array(self.lifts) if self._is_guest(group.parties) else {})

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """Step (1): the logits, dropout off so that both sides mean the same."""
        said = self.computed(cohort, x, Mode.UPLOAD if training else Mode.PREDICT)
        return Upload(said | (_lifts.sides(cohort, x) if self._is_guest(cohort.names) else {}))

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """f(x) W of every party."""
        return {"o": cohort.silent_where_lacking(apply_heads(cohort.head, cohort.encode(x, mode)))}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """Steps (2) to (4)."""
        total, last = self._sum(uploads), state["dual"][plan.rows]  # yhat (B, K)
        seen = labels.targets(plan, total)
        y, w = labels.task.smoothed(seen, self.smoothing), labels.weights(plan.rows, seen)
        z = update_z(total, last, y, self.rho, labels.task, w)  # (update_z_wosplit)
        dual = update_dual(last, total, z, self.rho)  # (update_lambda_wosplit)
        state["dual"][plan.rows] = dual
        gaps = residuals(total, z, dual)
        notes = {"primal": gaps.primal, "dual": gaps.dual, **labels.task.notes(total, y)}
        told = {_lifts.SIDES: _lifts.codes_of(uploads)} if self.lifts else {}
        return Reply({"v": z - total - dual / self.rho} | told, notes=notes)  # (def_residual_wosplit), folded

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Step (5): tau steps of head and encoder towards u_k = o_k as sent + d v."""
        keys = [dropout_key(cohort.schema.seed, party, plan.number) for party in cohort.names]
        parts = (("head",), ("encoder",)) if self.alternate else (("head", "encoder"),)
        steps = local_steps(cohort, plan, self.local_steps)
        effort = Effort(steps, self.optimisers(), dropout_keys(keys, cohort.device), plan.number, parts)
        share, move = self.share(cohort.schema) / (1 + self.lifts), reply.common["v"]
        if self.lifts:
            move = _lifts.spread(move, _lifts.factors(reply.common[_lifts.SIDES]))
        target = uploaded["o"] + share * move
        x, held = cohort.x(plan.rows), cohort.holding(plan.rows)
        approach(cohort, x, target, self.rho / share, effort, held=held)

    def optimisers(self) -> Mapping[str, Optimiser]:
        """Head and encoder share one rule, but the head may step without momentum."""
        head = self.optimiser
        if self.head_momentum is not None and isinstance(head, SGD):
            head = head.model_copy(update={"momentum": self.head_momentum})
        return {"head": head, "encoder": self.optimiser, "head+encoder": self.optimiser}

    def share(self, schema: Schema) -> float:
        """The damping in force: between the paper's 1, which swings with many alike parties, and 1/M, which is slow."""
        return len(schema.parties) ** -0.5 if self.damping is None else self.damping

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """yhat = sum_k o_k, or (lifted)."""
        return self._sum(uploads)

    def _sum(self, uploads: Uploads) -> Tensor:
        total = uploads.total("o")
        return _lifts.lifted(total, _lifts.factors(_lifts.codes_of(uploads))) if self.lifts else total

    def _is_guest(self, parties: Sequence[str]) -> bool:
        """Whether these, of a group or a process, are the one party that says sides."""
        return self.lifts > 0 and tuple(parties) == (self.guest,)

    def scores(self, state: State, uploads: Uploads) -> Tensor:
        """o_k, or its lifted sum: what the prediction adds up."""
        each = torch.cat([group["o"] for group in uploads.groups])
        return _lifts.lifted(each, _lifts.factors(_lifts.codes_of(uploads))) if self.lifts else each
