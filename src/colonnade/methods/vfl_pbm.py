"""VFL-PBM (Tran, Castiglia, Patterson, Varela 2023): only a noisy whole-number sum of the embeddings is revealed.

Problem: minimise (1/N) sum_j l(sum_k x_j^k, y_j; theta_0), x^k = clip(f(x^k; theta_k), -1, 1): Split Learning with a
server model on the *sum* of bounded embeddings.

    party        q_k ~ Binomial(n, 1/2 + theta x_k) in every cell                     (count); up: b x d_f
    coordinator  S = sum_k q_k, s = (S - n M/2) / (theta n): unbiased for sum_k x_k   (estimate)
                 g = grad_s L(s, y; theta_0), one step of theta_0                     down: b x d_f, the same for all
    party        one step along g, through the clipping                               (chain)

Who draws: (count) protects, so it belongs to the gate, whose noise a method cannot see. `upload` hands over the mean
n (1/2 + theta x) of the counts; what `mechanism()` makes (privacy/pbm.py, where the cost is accounted for)
draws the counts. Without it the means themselves leave, (estimate) gives the exact sum, and the ledger says "none".

Deviations. (1) Clipping, as the publication's bounded embeddings; cells outside [-1, 1] have slope 0. (2) A party that
never uploaded about a row counts neither in S nor in M there. (3) The default optimisers are ours.

The coordinator needs only S: a secure sum can stand in the way, and only then the accountant's "sum" view is right.
Labels: as in Split Learning, the rows of g point one way per class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.methods._server import apply_server, get_server, open_server, train_server
from colonnade.methods._steps import local_steps, published_sgd
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.gaussian import NoiseSource
from colonnade.privacy.labels import Labels
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.pbm import MOST_TRIALS, PoissonBinomial, PoissonBinomialEvent, estimate, expected
from colonnade.privacy.sealed import Array, Upload
from colonnade.randomness import key
from colonnade.schedule import RoundPlan

# lr, local steps, momentum. The VIMADMM paper did not run this method; these are its Split Learning's
NEAREST = {
    "mnist": (0.3, 1, 0.9),
    "cifar10": (0.008, 1, 0.9),
    "nus_wide": (0.5, 1, 0.9),
    "modelnet40": (0.05, 1, 0.9),
}


class VFLPBM(Settings):
    """Split Learning on a sum of embeddings that is revealed only as whole numbers with binomial noise."""

    name: ClassVar[str] = "vfl_pbm"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    packs: ClassVar[bool] = True  # uploads are whole numbers: nobody else may round them

    trials: int = Field(16, ge=1, le=MOST_TRIALS, description="n: more trials, less noise, more given away")
    theta: float = Field(
        0.25, gt=0, lt=0.5, description="how far a value moves the chance from 1/2; smaller: more noise"
    )
    noise: bool = Field(True, description="draw counts in training; false: their means leave, and nothing is hidden")
    optimiser: Optimiser = Field(AdamW(lr=1e-2, weight_decay=1e-3), description="local optimiser")
    server_optimiser: Optimiser = Field(AdamW(lr=1e-2, weight_decay=1e-3), description="optimiser of the server model")

    @classmethod
    def paper(cls, dataset: str = "mnist") -> VFLPBM:
        """Plain SGD as in the publication, with the step sizes that the VIMADMM paper has for Split Learning."""
        _, local, server = published_sgd(NEAREST, dataset)
        return cls(optimiser=local, server_optimiser=server)

    @property
    def brings(self) -> str:
        """The name of its own noise."""
        return PoissonBinomialEvent.kind.name if self.noise else ""

    def mechanism(self, source: NoiseSource, schema: Schema) -> Mechanism | None:
        """What the gate has to put before every upload of training."""
        return PoissonBinomial(self.trials, self.theta, schema.groups[0].width, source) if self.noise else None

    def open_party(self, cohort: Cohort) -> None:
        """The server model lives at the coordinator: nothing to prepare."""

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """A first server model on a sum, and a record of who uploaded about which row."""
        widths = {group.width for group in schema.groups}
        if len(widths) > 1:
            raise ConfigError(f"vfl_pbm adds embeddings, so they need one width; these have {sorted(widths)}")
        names = [name_key(party) for party in schema.parties]
        uploads = torch.zeros(schema.rows, len(names), dtype=torch.uint8, device=schema.device)
        state: State = {"names": torch.tensor(names, device=schema.device), "heard": uploads}
        open_server(state, schema, self.server_optimiser, width=widths.pop())
        return state, None

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """One count per cell."""
        return {"q": Array(group.width)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """The means of the counts; the gate draws them (count)."""
        h = cohort.encode(x, Mode.UPLOAD if training else Mode.PREDICT)
        return Upload({"q": expected(h, self.trials, self.theta)})

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """(estimate), one step of the server model, and the slope in the sum for all."""
        present = [name_key(party) for party in plan.senders]
        places = torch.isin(state["names"], state["names"].new_tensor(present)).nonzero()[:, 0]
        state["heard"][plan.rows[:, None], places] = 1
        parties = state["heard"][plan.rows].sum(dim=1, keepdim=True)  # (B, 1)
        total = self.sum(state, uploads, parties)
        slope, notes = train_server(state, total, plan, labels, self.server_optimiser)
        return Reply({"slope": slope}, notes=notes)

    def sum(self, state: State, uploads: Uploads, parties: Tensor | int) -> Tensor:
        """(estimate): sum_k x_k (B, d_f)."""
        counts = uploads.total("q").to(state["server.weight.0"].dtype)
        return estimate(counts, parties, self.trials, self.theta)

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """One step along the common slope."""
        slope = reply.common["slope"].expand(len(cohort.names), -1, -1)
        inputs = {"x": cohort.x(plan.rows), "slope": slope}
        steps = local_steps(cohort, plan, 1)
        descend(cohort, self.objective, inputs, steps=steps, optimiser=self.optimiser, round_number=plan.number)

    def objective(self, cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
        """(chain): sum g . clip(f(x))."""
        return (cohort.encode(inputs["x"], Mode.LEARN).clamp(-1, 1) * inputs["slope"]).sum()

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The server model on the estimated sum; all parties have uploaded then."""
        return apply_server(get_server(state), self.sum(state, uploads, len(state["names"])))


def name_key(party: str) -> int:
    """A party's name as a number, for a state of tensors."""
    return key(0, "name", party) >> 66
