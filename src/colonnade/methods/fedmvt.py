"""FedMVT (Kang, Liu and Chen, 2020): two parties that share few rows learn from the rows they do not share as well.

Rows are matched (both parties hold them), or held by the guest alone, or by the host alone. The guest is the label
holder's own party: as a rule its rows have labels and those of the host alone have none. A party's representation is
h = [u, c], a unique and a shared part. M are the matched rows of a batch, A(q, K, V) = softmax(q K^T / (T sqrt d)) V.
A round:

    party        h_k = f(x_k)                                                          (views); up: b x d_f
    coordinator  e_k = [A(u_j, u_j[M], u_k[M]), A(c_j, c_k[held], c_k[held])]          (estimate), j the other party
                 v_k = h_k where party k holds the row, e_k where not                  (complete)
                 a row without a label gets the one that the joint, the guest's and the host's classifier all
                 give, if the joint one is surer than t and the host's than t_h        (pseudo)
                 L   = l(joint(v_1, v_2), y) + l(first(v_1), y) + l(second(v_2), y)    over rows with a (pseudo-)label,
                                                                                       M weighs at least w of them
                       + alpha |c_1 - c_2|^2 + beta sum_k |e_k - h_k|^2                over M, means
                       + gamma sum_k |U_k^T C_k|_F / n_k                               (objective)
                 one step of the three classifiers on L                                (classifiers)
                 g_k = dL/dh_k                                                         (gradient); down: b x d_f
    party        theta_k = theta_k - eta_k sum_j (dh_j/dtheta_k) g_j                   (local)

Who holds what is `Federation.held`, whose label is known `Federation.labelled`. A party is asked about the whole batch,
and what it says of a row that it does not hold is zeros, which are dropped unread; the gradient it gets there is zero,
and unknown labels are never asked for. Its network does see rows of zeros there: BatchNorm counts them.

Simulated: `matched`. Where all parties hold all rows, `matched` below 1 lets the seed draw which training rows stay
matched and gives the others to the parties in turn; labels of the host's own rows are then never asked for. What a
party says of a row that it is not to hold is dropped too, so it can change nothing, but for statistics of whole batches
and columns: BatchNorm, column scaling, the clipping norm of client DP.

Labels: g_k is a gradient as in Split Learning, so rows of one class point one way: FULL. Rows without a label show only
what the classifiers guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods._server import follow, get_server, step_server
from colonnade.methods._steps import embedding, local_steps, published, upload_embedding
from colonnade.methods._views import (
    classify,
    estimate,
    find_holders,
    gap,
    holds,
    open_classifiers,
    overlap,
    parts,
    weigh,
)
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan

# lr, steps, attention temperature of the authors' program; it did not run MNIST, which gets CIFAR's
PUBLISHED = {"mnist": (1e-3, 1, 0.1), "cifar10": (1e-3, 1, 0.1), "nus_wide": (5e-3, 1, 0.7)}
THRESHOLDS = {"mnist": (0.6, 0.3), "cifar10": (0.6, 0.3), "nus_wide": (0.8, 0.7)}
Held = tuple[Tensor, Tensor]  # per party: which rows it holds


class FedMVT(Settings):
    """Two parties with few rows in common: attention estimates what one lacks, three classifiers label the rest."""

    name: ClassVar[str] = "fedmvt"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    parties: ClassVar[int] = 2  # exactly; other methods take any number
    partial: ClassVar[bool] = True  # takes rows that lack a party's columns or a label; other methods refuse them

    matched: float = Field(
        1.0, gt=0, le=1, description="below 1: simulate that both parties hold only this share of the training rows"
    )
    guest: Literal["first", "second"] = Field("first", description="the party of the federation that owns the labels")
    threshold: float = Field(0.9, ge=0, le=1, description="pseudo-labels: how sure the joint classifier must be (t)")
    host_threshold: float = Field(0.6, ge=0, le=1, description="pseudo-labels: how sure the host's must be (t_h)")
    temperature: float = Field(0.3, gt=0, description="of the attention; small: the most alike row alone counts (T)")
    emphasis: float = Field(
        0.2, ge=0, lt=1, description="share of the classifiers' loss that matched rows have at least (w)"
    )
    align: float = Field(0.1, ge=0, description="weight of equal shared parts on matched rows (alpha)")
    recover: float = Field(0.1, ge=0, description="weight of right estimates on matched rows (beta)")
    separate: float = Field(0.01, ge=0, description="weight of unique parts that differ from shared ones (gamma)")
    optimiser: Optimiser = Field(AdamW(lr=5e-3, weight_decay=1e-3), description="local optimiser")
    server_optimiser: Optimiser = Field(AdamW(lr=1e-2, weight_decay=1e-3), description="optimiser of the classifiers")

    @classmethod
    def paper(cls, dataset: str = "cifar10") -> FedMVT:
        """The settings of the authors' program, which draws as many matched rows as others."""
        lr, _, temperature = published(PUBLISHED, dataset)
        joint, host = THRESHOLDS[dataset]
        rule = AdamW(lr=lr, weight_decay=0.0)
        chosen = cls(threshold=joint, host_threshold=host, temperature=temperature, emphasis=0.5)
        return chosen.model_copy(update={"optimiser": rule, "server_optimiser": rule})

    @property
    def _guest(self) -> int:
        """Its place in the federation."""
        return 0 if self.guest == "first" else 1

    def open_party(self, cohort: Cohort) -> None:
        """The classifiers live at the coordinator: nothing to prepare."""

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """Three first classifiers, and who holds which row, which as a `cache.` is no part of the model."""
        holders, labelled = find_holders(schema, self.matched, self._guest)
        state: State = {"cache.holders": holders, "cache.labelled": labelled}
        open_classifiers(state, schema, self.server_optimiser)
        return state, None

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return embedding(group)

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """(views)."""
        return upload_embedding(cohort, x, training)

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """(estimate) to (gradient)."""
        h = [party for group in uploads.groups for party in group["h"]]  # two of (B, d_f), in federation order
        holders = state["cache.holders"][plan.rows]
        held = holds(holders, 0), holds(holders, 1)
        targets, counted, notes = self._targets(state, h, held, plan, labels)
        with torch.enable_grad():  # coordinate() runs without
            models = {k: v.detach().requires_grad_() for k, v in get_server(state).items()}
            at = [view.detach().requires_grad_() for view in h]
            views, auxiliary = self._complete(at, held)
            drop = (float(state["drop.rate"]), state["drop.key"], plan.number)
            answers = classify(models, views, drop)
            weights = weigh(counted, held[0] & held[1], self.emphasis)
            given = labels.weights(plan.rows, targets)  # of pseudo-labels by their class only
            weights = weights if given is None else weights * given
            loss = auxiliary + sum(labels.task.loss(logits, targets, weights) for logits in answers)  # (objective)
            wanted = [*models.values(), *at]
            *slopes, first, second = torch.autograd.grad(loss, wanted, materialize_grads=True)
        step_server(state, dict(zip(models, slopes, strict=True)), self.server_optimiser, plan.number)  # (classifiers)
        slope = iter((first, second))
        own = tuple({"slope": torch.stack([next(slope) for _ in group["h"]])} for group in uploads.groups)  # (gradient)
        return Reply(own=own, notes=notes)

    def _complete(self, h: list[Tensor], held: Held) -> tuple[list[Tensor], Tensor]:
        """(complete): both views of every row; and the terms of the objective that need no labels."""
        shared = min(view.shape[1] for view in h) // 2
        both = held[0] & held[1]
        sides = ((1, 0), (0, 1))  # who looks, whose view is missing
        rough = [estimate(h[j], h[k], (held[j], held[k]), shared, self.temperature) for j, k in sides]  # (estimate)
        views = [own.where(mine[:, None], guess) for own, mine, guess in zip(h, held, rough, strict=True)]
        alike = gap(*(parts(view[both], shared)[1] for view in h))
        right = sum((gap(rough[k][both], h[k][both]) for k in (0, 1)), h[0].new_zeros(()))
        same = sum((overlap(h[k][held[k]], shared) for k in (0, 1)), h[0].new_zeros(()))
        return views, self.align * alike + self.recover * right + self.separate * same

    def _targets(
        self, state: State, h: list[Tensor], held: Held, plan: RoundPlan, labels: Labels
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Targets (B, K), which rows have one, and notes; labels are asked for where they are known only."""
        guest, known = self._guest, state["cache.labelled"][plan.rows]
        views, _ = self._complete(h, held)
        joint, *single = classify(get_server(state), views)
        (targets, sure), (guests, _), (hosts, too) = (
            labels.task.pseudo(logits) for logits in (joint, single[guest], single[1 - guest])
        )
        agreed = ((targets == guests) & (guests == hosts)).all(dim=1)
        counted = agreed & (sure > self.threshold) & (too > self.host_threshold) & ~known  # (pseudo)
        notes = {"pseudo_labels": counted.sum()}
        if bool(known.any()):
            visit = RoundPlan(plan.number, plan.rows[known], plan.senders, plan.learners)
            targets[known] = labels.targets(visit, joint[known])
            notes |= labels.task.notes(joint[known], targets[known])
        return targets, counted | known, notes

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """One step (local)."""
        inputs = {"x": cohort.x(plan.rows), "slope": reply.own["slope"]}
        steps = local_steps(cohort, plan, 1)
        descend(cohort, follow, inputs, steps=steps, optimiser=self.optimiser, round_number=plan.number)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The joint classifier, for rows that both parties hold."""
        return classify(get_server(state), [party for group in uploads.groups for party in group["h"]])[0]
