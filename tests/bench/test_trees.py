"""`bench trees` on a made-up set: the keys that it promises, the bytes that it counts, and whose labels are private."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colonnade.bench import trees
from colonnade.bench.catalogue import find, read_bench
from colonnade.bench.settings import Options
from colonnade.errors import ConfigError
from tests.bench.test_tables import made_up

pytest.importorskip("lightgbm")
OURS = {"sets": ["breast"], "private_sets": ["breast"], "draws": 1}
BENCH = read_bench("trees", {"title": "t", "kind": "trees", "trees": OURS})


def test_every_method_is_measured_beside_the_central_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "read_set", lambda name, folder: made_up())
    told: list[str] = []
    results = trees.run_trees(BENCH, Options(data_dir=Path(), seeds=1), told.append)
    each = {f"{what}.{name}.breast" for what in ("score", "gap", "mb", "cpu_ratio") for name in trees.RECIPES}
    assert results.keys() == each | {"central.breast", "auc_eps1.one_message.breast"}
    for name in trees.RECIPES:
        gap = results[f"gap.{name}.breast"]
        assert gap == pytest.approx(results["central.breast"] - results[f"score.{name}.breast"])
        least = 0.7 if name == "assisted_boosting" else 0.85  # whose steps and rounds 27 rows choose, by chance
        assert results[f"score.{name}.breast"] > least
    assert 0 < results["mb.one_message.breast"] < results["mb.vimadmm_j.breast"]
    assert len(told) == 1


def test_bytes_are_those_of_the_other_organisations() -> None:
    trial = trees.Trial.of("made up", made_up(), 0, 0)
    run = trial.train("one_message", trees.RECIPES["one_message"], 0)
    assert run.method.guest == "left"  # type: ignore[attr-defined]
    per_party, rounds = run.traffic.per_party()["right"], run.traffic.rounds
    validation = [one for one in rounds if one.evaluation_up]
    spent = sum(one.evaluation_up + one.evaluation_down for one in validation) / 2
    assert len(validation) == 1  # no test rows: those are predicted after the training
    assert trees.crossed(run, "left") == round(per_party["up"] + per_party["down"] + spent)


def test_targets_are_of_keys_that_there_are() -> None:
    bench = find("trees")
    sets = bench.tables["trees"]["sets"]
    whats = {"gap", "mb", "cpu_ratio", "auc_eps1"}
    for key in bench.limits("cpu"):
        what, method, name = key.split(".")
        assert what in whats
        assert method in trees.RECIPES
        assert name in sets


@pytest.mark.parametrize(
    ("options", "said"), [({"only": ("brest",)}, "there is no set 'brest'"), ({}, "needs --data-dir")]
)
def test_refusals(options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        trees.run_trees(BENCH, Options(**options), print)
