"""Our folded messages give the trajectory of the paper's unfolded ones, whatever happens to the uploads on the way."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from colonnade.fit import Trainer
from colonnade.methods import VIMADMM, VIMADMMJ
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD
from colonnade.privacy.mechanism import Mechanism
from tests.federations import small
from tests.mechanisms import Chain, Noise, Rounding
from tests.reference.vimadmm import Encoder, Momentum, Reference, Settings
from tests.trainers import open_trainer, party_tensors, rounds_of

FEDERATION = small(rows=60)
PARTIES = len(FEDERATION.parties)
LOCAL = SGD(lr=0.05, momentum=0.9, weight_decay=0.01)
MODEL = ModelSettings(hidden=6, embedding=4, scale_columns="never")
ROUNDS = 7


def mechanism(noise: float, rounding: bool) -> Mechanism | None:
    parts: tuple[Mechanism, ...] = ((Noise(noise),) if noise else ()) + ((Rounding(),) if rounding else ())
    return Chain(parts) if parts else None


def method_of(s: Settings, joined: bool) -> Method:
    common: dict[str, Any] = {"rho": s.rho, "local_steps": s.tau, "optimiser": LOCAL, "damping": s.damping}
    if joined:
        return VIMADMMJ(alternate=s.alternate, head_momentum=s.head_momentum, **common)
    choices = {"head_update": s.head_update, "head_lr": s.head_lr, "residual": s.residual}
    return VIMADMM(beta=s.beta, kappa=s.kappa, **choices, **common)


def reference_of(trainer: Trainer, s: Settings, mechanism: Mechanism | None, joined: bool) -> Reference:
    """The reference starts from the same weights."""
    held = party_tensors(trainer)

    def weights(party: str, name: str) -> np.ndarray:
        return held[party][f"parameter.{name}"].numpy()

    encoders = [
        Encoder(
            weights(p, "1.weight").T.copy(), weights(p, "1.bias"), weights(p, "3.weight").T.copy(), weights(p, "3.bias")
        )
        for p in FEDERATION.names
    ]
    if joined:
        heads = [held[p]["head.weight.0"].numpy() for p in FEDERATION.names]
    else:
        heads = list(trainer.coordinator.state["head.0.weight.0"].numpy().copy())
    return Reference(
        settings=s,
        names=FEDERATION.names,
        columns=[p.columns.numpy() for p in FEDERATION.parties],
        targets=np.eye(FEDERATION.outputs)[FEDERATION.labels.numpy()],
        encoders=encoders,
        heads=heads,
        optimiser=lambda: Momentum(LOCAL.lr, LOCAL.momentum, LOCAL.weight_decay),
        mechanism=mechanism,
    )


def furthest(
    s: Settings, *, noise: float, rounding: bool, share: float, joined: bool, engine: str = "stacked"
) -> float:
    """The largest difference between ours and the reference, over all weights, heads and duals of all rounds."""
    mechanism_ = mechanism(noise, rounding)
    trainer = open_trainer(
        FEDERATION, method_of(s, joined), model=MODEL, mechanism=mechanism_, engine=engine,
        rounds=ROUNDS, evaluate_every=0, schedule={"batch": 16, "participation": share},
    )  # fmt: skip
    reference, schedule, worst = reference_of(trainer, s, mechanism_, joined), trainer.coordinator.schedule, 0.0
    for one_round in rounds_of(trainer):
        number = one_round.request.number
        if number > ROUNDS + 1:
            break
        worst = max(worst, difference(trainer, reference, joined))  # both have now learnt from the last round
        if number <= ROUNDS:
            plan = schedule.plan(number)
            play = reference.whole_round if joined else reference.split_round
            play(number, plan.rows.numpy(), plan.senders)
    return worst


def difference(trainer: Trainer, reference: Reference, joined: bool) -> float:
    held, state = party_tensors(trainer), trainer.coordinator.state
    gaps = [np.abs(state["dual"].numpy() - reference.dual).max()]
    for k, party in enumerate(FEDERATION.names):
        ours = [held[party][f"parameter.{n}"].numpy() for n in ("1.weight", "1.bias", "3.weight", "3.bias")]
        net = reference.encoders[k]
        gaps += [np.abs(a - b).max() for a, b in zip(ours, (net.A.T, net.a, net.B.T, net.b), strict=True)]
        head = held[party]["head.weight.0"] if joined else state["head.0.weight.0"][k]
        gaps.append(np.abs(head.numpy() - reference.heads[k]).max())
    return float(max(gaps))


NOISES, ROUNDINGS, SHARES, DAMPINGS = (0.0, 0.2), (False, True), (1.0, 0.5), (1.0, 1 / PARTIES)
UPLOADS = [  # nothing, every two and all three: a mistake in one of them shows beside another, too
    (n, r, s) for n, r, s in product(NOISES, ROUNDINGS, SHARES) if bool(n) + r + (s < 1) != 1
]


@pytest.mark.parametrize("damping", DAMPINGS, ids=["undamped", "damped"])
@pytest.mark.parametrize("head_update", ["sgd", "joint"])
@pytest.mark.parametrize("residual", ["before", "after"])
def test_vimadmm_is_the_unfolded_algorithm(residual: Any, head_update: Any, damping: float) -> None:
    s = Settings(residual=residual, head_update=head_update, damping=damping)
    for noise, rounding, share in UPLOADS:
        gap = furthest(s, noise=noise, rounding=rounding, share=share, joined=False)
        assert gap <= 1e-9, f"noise {noise}, rounding {rounding}, participation {share}: off by {gap:.1e}"


@pytest.mark.parametrize("damping", DAMPINGS, ids=["undamped", "damped"])
@pytest.mark.parametrize(
    ("alternate", "head_momentum"),
    [(False, None), (True, None), (True, 0.0)],
    ids=["at once", "alternating", "alternating, plain head steps"],
)
def test_vimadmm_j_is_the_unfolded_algorithm(alternate: bool, head_momentum: float | None, damping: float) -> None:
    s = Settings(alternate=alternate, head_momentum=head_momentum, damping=damping)
    for noise, rounding, share in UPLOADS:
        gap = furthest(s, noise=noise, rounding=rounding, share=share, joined=True)
        assert gap <= 1e-9, f"noise {noise}, rounding {rounding}, participation {share}: off by {gap:.1e}"


@pytest.mark.parametrize("joined", [False, True], ids=["vimadmm", "vimadmm_j"])
def test_the_loop_engine_too(joined: bool) -> None:
    assert furthest(Settings(), noise=0.2, rounding=True, share=0.5, joined=joined, engine="loop") <= 1e-9


class TestItWouldNotice:
    """Mistakes that train quietly wrong: each must be far outside the tolerance above."""

    @pytest.mark.parametrize("residual", ["before", "after"])
    @pytest.mark.parametrize(("noise", "share"), [(0.2, 1.0), (0.0, 0.5), (0.2, 0.5)])
    def test_the_clean_own_part(self, residual: Any, noise: float, share: float) -> None:
        s = Settings(residual=residual, wrong="clean")
        assert furthest(s, noise=noise, rounding=False, share=share, joined=False) > 1e-3

    @pytest.mark.parametrize("residual", ["before", "after"])
    @pytest.mark.parametrize("head_update", ["sgd", "joint"])
    def test_the_other_heads(self, residual: Any, head_update: Any) -> None:
        s = Settings(residual=residual, head_update=head_update, wrong="mixed")
        assert furthest(s, noise=0.0, rounding=False, share=1.0, joined=False) > 1e-3

    @pytest.mark.parametrize(("noise", "share"), [(0.2, 1.0), (0.0, 0.5)])
    def test_the_clean_logits(self, noise: float, share: float) -> None:
        assert furthest(Settings(wrong="clean"), noise=noise, rounding=False, share=share, joined=True) > 1e-3

    def test_the_two_forms_differ(self) -> None:
        """before and after are two algorithms, not two ways to write one."""
        s = Settings(residual="after")
        trainer_settings = Settings(residual="before")
        mechanism_ = mechanism(0.0, False)
        trainer = open_trainer(
            FEDERATION, method_of(trainer_settings, False), model=MODEL,
            rounds=ROUNDS, evaluate_every=0, schedule={"batch": 16},
        )  # fmt: skip
        reference = reference_of(trainer, s, mechanism_, joined=False)
        schedule = trainer.coordinator.schedule
        for one_round in rounds_of(trainer):
            if one_round.request.number <= ROUNDS:
                plan = schedule.plan(one_round.request.number)
                reference.split_round(plan.number, plan.rows.numpy(), plan.senders)
        assert difference(trainer, reference, joined=False) > 1e-3
