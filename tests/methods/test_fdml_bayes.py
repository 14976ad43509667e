"""FDML's parties may weigh noisy labels with what the sum says, as a label holder does under ALIBI."""

from __future__ import annotations

import pytest
import torch

from colonnade.data.sets import load_set
from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.methods.fdml import FDML, believed
from colonnade.privacy.labels import posterior
from colonnade.tasks.multiclass import Multiclass


def test_it_is_the_rule_that_a_label_holder_uses() -> None:
    drawn = torch.Generator().manual_seed(0)
    evidence = 3 * torch.randn(40, 5, generator=drawn, dtype=torch.float64)
    outputs = torch.randn(40, 5, generator=drawn, dtype=torch.float64)
    uniform = posterior(evidence, torch.zeros_like(evidence), Multiclass(5))
    torch.testing.assert_close(believed(uniform, outputs), posterior(evidence, outputs, Multiclass(5)))


def outputs(after: int | None, **privacy: object) -> torch.Tensor:
    """Of a short training on digits, for the test rows."""
    federation = load_set("digits", parties=2)
    run = fit(federation, FDML(bayes_after=after), rounds=6, batch=256, progress=False, privacy=privacy)
    return run.model.logits({party.name: party.columns[federation.split.test] for party in federation.parties})


def test_plain_labels_stay_as_they_are() -> None:
    assert torch.equal(outputs(None), outputs(2))


def test_noisy_labels_are_weighed_from_the_round_after() -> None:
    labels = {"mechanism": "alibi", "epsilon": 2.0}
    never, too_late, in_time = (outputs(after, labels=labels) for after in (None, 6, 2))
    assert torch.equal(never, too_late) and not torch.allclose(never, in_time)


def test_a_task_without_exclusive_classes_is_refused() -> None:
    drawn = torch.Generator().manual_seed(0)
    columns = {name: torch.randn(60, 3, generator=drawn) for name in ("a", "b")}
    numbers = Federation.from_arrays(columns, torch.randn(60, generator=drawn), task="regression")
    with pytest.raises(ConfigError, match="bayes_after"):
        fit(numbers, FDML(bayes_after=1), rounds=1, progress=False)
