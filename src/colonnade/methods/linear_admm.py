"""Linear-ADMM (Hu et al., 2019, sharing ADMM): linear local models, every step exact.

Problem: minimise (1/N) sum_j l(sum_k x_j^k W_k, y_j) + beta sum_k |W_k|^2, split by ADMM with one auxiliary variable
z_j and one dual lambda_j per row. A round:

    party        o_k = x_k W_k                                                         up: b x d_c
    coordinator  z      = argmin l(z, y) - lambda.z + rho/2 |yhat - z|^2                               (z_step)
                 lambda = lambda + rho (yhat - z)                                                      (dual_step)
                 down: v = z - yhat - lambda/rho, the same for all                     down: b x d_c
    party        W_k = argmin rho/(2 d b) |x_k W - (o_k + d v)|^2 + beta |W|^2 + kappa/2 |W - W_k|^2   (x_step)

All parties solve (x_step) at once (Jacobi). With d = 1 each would remove the whole residual, and alike parties
diverge unless rho grows with M. `damping` d weighs the penalty with rho/d and asks for a share d of the residual;
that is the same as adding the proximal term rho (1/d - 1)/(2b) |x_k (W - W_k)|^2. At d = 1/M, our default, this is
Boyd's sharing ADMM, which converges for every M and every rho. One round on all rows is the published method; with
smaller batches the solve sees the round's rows only, and `kappa` keeps it near the last weights.

The networks of `model.encoder` are not used: a party's model is its columns times one matrix, kept as its head.
Deviations. (1) lambda and the residual are folded into v, as in `vimadmm_j`. (2) `intercept` adds a constant column
at each party.
Noise, if wanted: W_k = W_k + N(0, sigma^2 (D_k'D_k)^-1) after every solve, D_k all training rows of the party (noise).
Along directions that no training row shows (D_k'D_k is singular) there is none. Every upload of training is made
from such a W_k and stands in the ledger as "model noise", unit ROW. What it is worth depends on the sensitivity that
its publication derives, which we do not have: no epsilon is printed. For the same reason it is added in floating
point, not on a grid (`privacy/grid.py`): uploads are exact functions of columns and noisy weights, and the low bits add
nothing to what nobody has bounded.
Labels: after the z-step lambda = softmax(z) - y, and v carries lambda, so parties can decode every label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.admm.step import residuals, update_dual, update_z
from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.methods._steps import check_damping, local_steps
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.ridge import ridge_solve, with_constant
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.declared import Declared, ModelNoiseEvent
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.gaussian import NoiseSource
from colonnade.privacy.labels import Labels
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan

MODEL_NOISE = ModelNoiseEvent.kind.name
AT_ONCE = 1 << 16  # training rows that are read at once


class LinearADMM(Settings):
    """Linear local models by sharing ADMM: an exact ridge solve per party and round."""

    name: ClassVar[str] = "linear_admm"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False

    rho: float = Field(0.1, gt=0, description="weight of the agreement penalty")
    beta: float = Field(1e-4, gt=0, description="weight of |W|^2")
    kappa: float = Field(0.1, ge=0, description="pull towards the last weights: calms small batches")
    damping: float | None = Field(
        None, gt=0, le=1, description="share of the residual each party removes; 1: undamped; unset: 1/M"
    )
    intercept: bool = Field(True, description="add a constant column at each party")
    noise: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="the published noise on each party's model (sigma); 0: none"
    )

    @property
    def brings(self) -> str:
        """The name of its own noise."""
        return MODEL_NOISE if self.noise else ""

    def mechanism(self, source: NoiseSource, schema: Schema) -> Mechanism | None:
        """What the ledger says of uploads: the noise is in the model that makes them."""
        return Declared(ModelNoiseEvent(self.noise, source.simulated)) if self.noise else None

    def open_party(self, cohort: Cohort) -> None:
        """Zero weights, (P, d, K): the problem is convex."""
        if not cohort.encoder.gradients:
            raise ConfigError(
                f"linear_admm is a ridge solve at every party and would not use the local model of party "
                f"{cohort.names[0]!r}; leave it out, or use vimadmm_j"
            )
        s, width = cohort.schema, self.design(torch.zeros(1, 1, *cohort.columns.shape[2:])).shape[2]
        weight = torch.zeros(len(cohort.names), width, s.outputs, dtype=s.dtype, device=cohort.device)
        cohort.head = {"weight.0": weight}
        if self.noise:
            cohort.memory["spread"] = self.spread(cohort).to(s.dtype)

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """A zero dual for every row."""
        check_damping(self.damping, len(schema.parties))
        return {"dual": schema.zeros(schema.rows, schema.outputs)}, None

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(schema.outputs)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """x_k W_k."""
        return Upload(self.computed(cohort, x, Mode.PREDICT))

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """The same in every mode: there is no network."""
        return {"o": torch.bmm(self.design(x), cohort.head["weight.0"])}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """z and lambda of the round's rows; one matrix for all goes back."""
        total, last = uploads.total("o"), state["dual"][plan.rows]  # yhat (B, K)
        y = labels.targets(plan, total)
        z = update_z(total, last, y, self.rho, labels.task, labels.weights(plan.rows, y))  # (z_step)
        dual = update_dual(last, total, z, self.rho)  # (dual_step)
        state["dual"][plan.rows] = dual
        gaps = residuals(total, z, dual)
        notes = {"primal": gaps.primal, "dual": gaps.dual, **labels.task.notes(total, y)}
        return Reply({"v": z - total - dual / self.rho}, notes=notes)

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """One exact solve, whatever number of local steps above 0 the round asks for."""
        d = self.share(cohort.schema)
        x, weight = self.design(cohort.x(plan.rows)), cohort.head["weight.0"].detach()
        new = self.solve(x, uploaded["o"] + d * reply.common["v"], weight, self.rho / d)
        steps = local_steps(cohort, plan, 1)
        active = torch.tensor([steps] * len(weight) if isinstance(steps, int) else steps, device=cohort.device) > 0
        if self.noise:
            if cohort.draw is None:
                raise ConfigError("linear_admm has noise to draw, and nowhere to draw it from; nothing was learnt")
            drawn = cohort.draw(cohort.names, plan.number, MODEL_NOISE, weight[0].numel(), self.noise)
            new = new + cohort.memory["spread"].double() @ drawn.reshape(weight.shape).to(new)  # (noise)
        weight[active] = new[active].to(weight.dtype)  # in place: the cohort's tensors are never replaced

    def spread(self, cohort: Cohort) -> Tensor:
        """(P, d, d): a root of (D'D)^-1 over the training rows, in float64; zero where D'D is.

        Of columns of norm 1, so that a column in small units is not taken for one that is not there.
        """
        norms = _total(rows.square().sum(dim=1) for rows in self._training_rows(cohort)).sqrt()  # (P, d)
        inverse = norms.where(norms > 0, 1.0).reciprocal().where(norms > 0, 0.0)
        alike = (rows * inverse.unsqueeze(1) for rows in self._training_rows(cohort))
        values, vectors = torch.linalg.eigh(_total(torch.bmm(rows.mT, rows) for rows in alike))  # (P, d), (P, d, d)
        seen = values > 1e-12 * values.amax(dim=1, keepdim=True)
        root: Tensor = vectors * values.where(seen, 1.0).rsqrt().where(seen, 0.0).unsqueeze(1)
        return inverse.unsqueeze(2) * root

    def _training_rows(self, cohort: Cohort) -> Iterator[Tensor]:
        """All training rows (P, B, d) in float64, some at a time: they may be larger than memory."""
        return (self.design(cohort.x(part)).double() for part in cohort.schema.train.split(AT_ONCE))

    def solve(self, x: Tensor, target: Tensor, last: Tensor, penalty: float) -> Tensor:
        """(x_step) for all parties in float64: (penalty/b x'x + 2 beta + kappa) W = penalty/b x' target + kappa W_k."""
        return ridge_solve(x, target, last, penalty, self.beta, self.kappa)

    def design(self, x: Tensor) -> Tensor:
        """Columns (P, B, ...) as a matrix (P, B, d), with a constant one if wanted."""
        flat = x.flatten(2)
        return with_constant(flat) if self.intercept else flat

    def share(self, schema: Schema) -> float:
        """The damping in force."""
        return 1 / len(schema.parties) if self.damping is None else self.damping

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """yhat = sum_k x_k W_k."""
        return uploads.total("o")


def _total(parts: Iterable[Tensor]) -> Tensor:
    """Their sum."""
    return torch.stack(list(parts)).sum(dim=0)
