"""What a setting means when it is left out: the same as saying it."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.methods import VIMADMM, VIMADMMJ
from colonnade.models.encoders import ModelSettings
from colonnade.models.heads import HeadSettings
from tests.federations import small
from tests.trainers import TINY, open_trainer

MLP_HEADS = ModelSettings(hidden=6, embedding=4, head=HeadSettings(layers=2))
HALF = 4**-0.5  # 1/sqrt(M) of four parties


@pytest.mark.parametrize(
    ("model", "unsaid", "said"),
    [
        (TINY, VIMADMM(), VIMADMM(head_update="joint", residual="after", damping=1.0)),
        (TINY, VIMADMM(head_update="sgd"), VIMADMM(head_update="sgd", residual="before", damping=HALF)),
        (MLP_HEADS, VIMADMM(), VIMADMM(head_update="sgd", residual="before", damping=HALF)),
        (TINY, VIMADMMJ(), VIMADMMJ(damping=HALF)),
        (TINY, VIMADMMJ(alternate=True), VIMADMMJ(alternate=True, damping=HALF)),
    ],
    ids=["linear heads", "sgd heads", "mlp heads", "vimadmm_j", "alternating"],
)
def test_unsaid_is_said(model: ModelSettings, unsaid: Any, said: Any) -> None:
    options = {"model": model, "rounds": 3, "evaluate_every": 0}
    one, other = (open_trainer(small(), method, **options).train().fingerprint() for method in (unsaid, said))
    assert one == other


def test_the_paper_s_settings_are_not_damped() -> None:
    assert VIMADMM.paper().damping == VIMADMMJ.paper().damping == 1.0
    assert (VIMADMM.paper().head_update, VIMADMM.paper().residual) == ("sgd", "before")
