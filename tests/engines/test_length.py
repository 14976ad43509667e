"""How long a run trains, in rounds or epochs, and after which rounds it is evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade import Training, fit
from colonnade.admm.stopping import Stopping, Watch
from colonnade.errors import ConfigError
from colonnade.job import read_job
from tests.federations import small
from tests.trainers import TINY


def evaluated(**settings: Any) -> list[int]:
    run = fit(small(), "vimadmm", model=TINY, stopping={"drop": 1e9}, **settings)
    return [entry["round"] for entry in run.history if "score" in entry]


def test_without_a_setting_the_first_rounds_are_all_evaluated() -> None:
    assert evaluated(rounds=17, batch=10) == [1, 2, 3, 4, 5, 10, 15, 17]
    assert evaluated(rounds=3, batch=10) == [1, 2, 3]


def test_on_a_small_table_more_of_the_first_rounds_are_evaluated() -> None:
    assert evaluated(rounds=27) == [*range(1, 21), 25, 27]  # 18 validation rows, 54 in a round


def test_a_setting_means_what_it_meant() -> None:
    assert evaluated(rounds=12, evaluate_every=5) == [5, 10, 12]
    assert evaluated(rounds=4, evaluate_every=1) == [1, 2, 3, 4]
    assert evaluated(rounds=4, evaluate_every=0) == []


def test_early_evaluations_choose_the_kept_round_and_do_not_stop() -> None:
    watch = Watch(Stopping(drop=0.1, in_a_row=1, grace=0, patience=2))
    assert watch.see(0.9, 1, may_stop=False) == (True, None)
    assert watch.see(0.2, 2, may_stop=False) == (False, None)
    assert (watch.best_round, watch.seen, watch.judged) == (1, 0, True)
    better, reason = watch.see(0.3, 5)
    assert not better and reason is not None and "(best 0.9000, round 1)" in reason
    patient = Watch(Stopping(drop=10, patience=2))
    for number in range(1, 5):
        patient.see(0.5, number, may_stop=False)
    assert patient.see(0.5, 5)[1] is None
    assert patient.see(0.5, 10)[1] is None
    assert "no better in 2 evaluations" in str(patient.see(0.5, 15)[1])


@pytest.mark.parametrize(("epochs", "batch", "rounds"), [(3, 1000, 3), (2, 10, None), (0.5, 1000, 1), (1.5, 1000, 2)])
def test_epochs_are_rounds_that_visit_every_row(epochs: float, batch: int, rounds: int | None) -> None:
    federation = small()
    rows = len(federation.split.train)
    per_epoch = max(1, rows // batch + (rows % batch > 1))
    run = fit(federation, "vimadmm", epochs=epochs, batch=batch, model=TINY, stopping={"drop": 1e9})
    assert run.result["rounds"] == (rounds or epochs * per_epoch)
    assert run.training.rounds == run.result["rounds"] and run.training.epochs is None


def test_parties_that_take_turns_have_a_round_each() -> None:
    federation = small()
    settings: dict[str, Any] = {"schedule": {"batch": 1000, "order": "sequential"}, "model": TINY}
    assert fit(federation, "vimadmm", epochs=2, **settings).training.rounds == 2 * len(federation.names)


def test_a_length_said_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="rounds = 5 and epochs = 2 both say how long"):
        Training(rounds=5, epochs=2)
    with pytest.raises(ConfigError, match="both say how long"):
        fit(small(), "vimadmm", rounds=5, epochs=2)


def test_a_configuration_file_may_say_epochs() -> None:
    job = read_job({"data": {"set": "digits", "parties": 2}, "training": {"epochs": 2}})
    federation = job.federation()
    assert job.on(federation).training.rounds == 4  # 1,347 training rows, 1,024 in a round
    assert job.shortfall(federation) == ""
