"""VFL-PBM against plain PyTorch: sums of clipped embeddings, with the counts of the gate's mechanism or their means."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from colonnade import fit
from colonnade.errors import ConfigError
from colonnade.methods import VFLPBM
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.gaussian import SeededNoise
from colonnade.privacy.pbm import pbm_epsilon
from colonnade.privacy.promise import Circumstances
from colonnade.privacy.statement import Statement
from colonnade.wire.messages import Purpose
from tests.federations import small
from tests.methods.plain_local import ADAMS, SGDS, Sums, assert_same, networks, opened
from tests.methods.plain_split import FEDERATION, LINEAR, MLP
from tests.trainers import open_trainer, rounds_of

NOISE = SeededNoise(0)  # as a run with the default seed draws


def means(method: VFLPBM) -> Any:
    return lambda party, number, chance: method.trials * chance


def counts(method: VFLPBM) -> Any:
    def drawn(party: str, number: int, chance: Tensor) -> Tensor:
        generator = NOISE.generator(party, number, "TRAIN.0")
        return torch.from_numpy(generator.binomial(method.trials, chance.numpy()).astype(float))

    return drawn


@pytest.mark.parametrize("noise", [False, True], ids=["means", "counts"])
@pytest.mark.parametrize("model", [LINEAR, MLP], ids=["linear", "mlp"])
@pytest.mark.parametrize("schedule", [{}, {"participation": 0.5}], ids=["all", "silent"])
def test_training_on_the_sum(schedule: dict[str, Any], model: ModelSettings, noise: bool) -> None:
    method = VFLPBM(**(SGDS if model is LINEAR else ADAMS), trials=16, theta=0.2, noise=noise)
    trainer = opened(method, model, schedule)
    plain = networks(trainer, method)
    assert_same(trainer, plain, Sums(plain, method, counts(method) if noise else means(method)).round)


def test_nothing_but_counts_travels_and_the_ledger_says_so() -> None:
    method = VFLPBM(trials=16, theta=0.2)
    trainer = opened(method, LINEAR)
    for one_round in rounds_of(trainer):
        for ask, uploaded in zip(one_round.request.queries, one_round.collected.uploaded, strict=True):
            for group in uploaded if ask.purpose is Purpose.TRAIN else ():
                assert torch.equal(group.values["q"], group.values["q"].round())
                assert 0 <= float(group.values["q"].min()) <= float(group.values["q"].max()) <= 16
    train = [r for r in trainer.ledger if r.purpose is Purpose.TRAIN and r.owner != "coordinator"]
    used = {(r.mechanism, r.parameters) for r in train}
    assert used == {
        ("poisson binomial", (("trials", 16), ("theta", 0.2), ("width", LINEAR.embedding), ("simulated", 1.0)))
    }


def test_embeddings_of_two_widths_cannot_be_added() -> None:
    def encoder(party: str, shape: tuple[int, ...]) -> nn.Module:
        return nn.Linear(shape[0], 3 if party == "party_0" else 4)

    with pytest.raises(ConfigError, match="one width"):
        open_trainer(small(), VFLPBM(), encoders=encoder)


def test_the_common_slope_sorts_rows_by_label() -> None:
    """One label of each class is enough to read the others: exposure FULL, as for every gradient that goes down."""
    trainer = opened(VFLPBM(), LINEAR)
    first, second = (e for _, e in zip(range(2), rounds_of(trainer), strict=False))
    labels, slope = FEDERATION.labels[first.request.queries[0].rows], second.down.common["slope"]
    known = torch.stack([(labels == c).nonzero()[0, 0] for c in labels.unique()])
    alike = nn.functional.cosine_similarity(slope[:, None], slope[known][None], dim=2)
    assert (labels[known][alike.argmax(dim=1)] == labels).double().mean() > 0.9
    assert VFLPBM.exposes is LabelExposure.FULL


def test_noise_on_noise_is_refused() -> None:
    privacy = {"mechanism": "gaussian", "clip": 1.0, "sigma": 1.0}
    with pytest.raises(ConfigError, match=r"brings noise of its own .poisson binomial.; leave privacy.mechanism out"):
        fit(small((5,) * 3), VFLPBM(), privacy=privacy, rounds=1)


def test_under_a_secure_sum_the_counts_add_up_exactly() -> None:
    """Whole numbers on a grid of whole numbers: the same training, and the ledger names both."""
    runs = [fit(small((5,) * 3), VFLPBM(), privacy={"secure_sum": {"use": use}}, rounds=4) for use in (False, True)]
    assert runs[0].fingerprint() == runs[1].fingerprint()
    names = {r.mechanism for r in runs[1].ledger if r.purpose is Purpose.TRAIN and r.owner != "coordinator"}
    assert names == {"poisson binomial sum"}


@pytest.mark.parametrize("together", [False, True], ids=["each", "secure sum"])
def test_a_run_says_what_its_counts_cost(together: bool) -> None:
    """Every cell of every release, with everything that belongs to the figure; a sum of three, one of whom may talk."""
    method = VFLPBM(trials=4, theta=0.01)
    run = fit(small((5,) * 3), method, privacy={"secure_sum": {"use": together}}, rounds=4, schedule={"batch": 8})
    mine = [r for r in run.ledger if r.purpose is Purpose.TRAIN and r.owner == "party_0"]
    cells = sum(r.rows for r in mine) * int(dict(mine[0].parameters)["width"])
    view: Any = "sum" if together else "local"
    wanted = pbm_epsilon(1e-5, 4, 0.01, parties=2, cells=cells, releases=1, view=view)
    told = Statement.of(run.ledger, run.privacy, Circumstances(run.label_exposure, uploaded=True))
    assert told.epsilon == pytest.approx(wanted, rel=1e-9) and told.to_json()["accountant"] == "RDP"
    assert told.to_json()["epsilon_row"] > told.epsilon
    uploaded = " ".join(sentence for _, answers in told.answers() for sentence in answers)
    assert f"epsilon {wanted:.3f} (RDP accountant of the Poisson binomial mechanism" in uploaded
    assert "unit PARTY" in uploaded and "neighbours: replaced" in uploaded and "unit ROW" in uploaded
    assert ("what they know of the sum" in uploaded) == together and "Nobody's columns" not in uploaded
