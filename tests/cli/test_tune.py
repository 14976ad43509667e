"""`tune`: equal budgets, validation rows only, and an interruption that changes nothing."""

from __future__ import annotations

import math
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from colonnade.cli.tune import best_toml
from colonnade.errors import ConfigError, RunError
from colonnade.federation import Federation, Party
from colonnade.fit import Progress
from colonnade.job import Job, read_job
from colonnade.methods import METHODS, make_method
from colonnade.methods._convolutions import FOR_CONVOLUTIONS
from colonnade.privacy.accounting import exact_epsilon
from colonnade.privacy.repeats import of_searches
from colonnade.privacy.settings import PrivacySettings
from colonnade.search import Budget, Outcome, price, search_settings, without_test
from colonnade.search_space import Dimension, asked_space, declared_space, flat, with_settings
from tests.cli.conftest import Call
from tests.cli.settings_doc import tomllib
from tests.federations import small
from tests.processes import interruptible

TABLES = {
    "method": {"name": "vimadmm", "local_steps": 1},
    "model": {"hidden": 6, "embedding": 4},
    "training": {"rounds": 50, "evaluate_every": 1, "schedule": {"batch": 54}},
}
SPACE = {"rho": Dimension(0.1, 10, log=True), "optimiser.lr": Dimension(1e-3, 1e-1, log=True)}
BUDGET = Budget(trials=5, rounds=2, seeds=(0, 1))


def job(**tables: Any) -> Job:
    return read_job({**TABLES, **tables})


def searched(path: Path, budget: Budget = BUDGET, **more: Any) -> Outcome:
    return search_settings(
        more.pop("job", job()), more.pop("federation", small()), SPACE, budget, path / "s.db", **more
    )


class Fits:
    """Every training of a search, seen from outside."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[Job, Federation]] = []
        real = Job.fit

        def fit(this: Job, federation: Federation, *rest: Any) -> Any:
            self.seen.append((this, federation))
            return real(this, federation, *rest)

        monkeypatch.setattr(Job, "fit", fit)


class TestRows:
    def test_trials_have_no_test_rows_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fits, whole = Fits(monkeypatch), small()
        searched(tmp_path, federation=whole)
        kept = len(whole.split.train) + len(whole.split.validation)
        assert len(fits.seen) == BUDGET.trials * len(BUDGET.seeds)
        for _, given in fits.seen:
            assert (given.rows, len(given.split.test)) == (kept, 0)
            assert all(len(party.columns) == kept for party in given.parties)

    def test_what_the_test_rows_hold_changes_nothing(self, tmp_path: Path) -> None:
        clean = small()
        test, spoilt = clean.split.test, []
        for party in clean.parties:
            columns = party.columns.clone()
            columns[test] = torch.nan
            spoilt.append(Party(party.name, columns))
        labels = clean.labels.clone()
        labels[test] = 0
        other = replace(clean, parties=tuple(spoilt), labels=labels)
        assert searched(tmp_path / "a", federation=clean) == searched(tmp_path / "b", federation=other)

    def test_rows_keep_their_columns_labels_and_places(self) -> None:
        whole = small()
        part = without_test(whole)
        for name in ("train", "validation"):
            old, new = getattr(whole.split, name), getattr(part.split, name)
            assert torch.equal(part.labels[new], whole.labels[old])
            for before, after in zip(whole.parties, part.parties, strict=True):
                assert torch.equal(after.columns[new], before.columns[old])


class TestSearch:
    def test_every_trial_has_the_same_rounds_and_seeds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fits = Fits(monkeypatch)
        outcome = searched(tmp_path)
        assert [j.training.seed for j, _ in fits.seen] == [0, 1] * 5
        assert {j.training.rounds for j, _ in fits.seen} == {2}
        settings = [j.method.model_dump() for j, _ in fits.seen[::2]]
        assert settings[0] == job().method.model_dump()  # first what is there
        assert all(0.1 <= s["rho"] <= 10 and 1e-3 <= s["optimiser"]["lr"] <= 1e-1 for s in settings)
        assert len({s["rho"] for s in settings}) == 5
        assert outcome.trials == 5
        assert outcome.usual is not None
        assert outcome.score is not None
        assert outcome.score >= outcome.usual

    def test_the_score_is_the_mean_of_the_validation_scores(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scores: list[float] = []
        real = Job.fit

        def fit(this: Job, *rest: Any) -> Any:
            run = real(this, *rest)
            scores.append(run.result["validation_score"])
            return run

        monkeypatch.setattr(Job, "fit", fit)
        outcome = searched(tmp_path)
        means = [(scores[n] + scores[n + 1]) / 2 for n in range(0, 10, 2)]
        assert (outcome.usual, outcome.score) == (pytest.approx(means[0]), pytest.approx(max(means)))

    @pytest.mark.parametrize("trial", [0, 3])
    def test_an_interrupted_search_goes_on_as_if_nothing_had_been(self, tmp_path: Path, trial: int) -> None:
        def interrupt(done: int, best: float | None, now: Progress | None) -> None:
            if done == trial:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path / "a", watch=interrupt)
        assert searched(tmp_path / "a") == searched(tmp_path / "b")

    def test_more_trials_add_to_those_that_are_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = searched(tmp_path / "a")
        searched(tmp_path / "b", replace(BUDGET, trials=3))
        fits = Fits(monkeypatch)
        assert searched(tmp_path / "b") == whole
        assert len(fits.seen) == 4

    def test_other_terms_are_refused(self, tmp_path: Path) -> None:
        few = replace(BUDGET, trials=1)
        searched(tmp_path, few)
        with pytest.raises(RunError, match="on other terms"):
            searched(tmp_path, replace(few, rounds=3))
        with pytest.raises(RunError, match="on other terms"):
            searched(tmp_path, few, job=job(model={"hidden": 7}))

    def test_settings_that_diverge_lose(self, tmp_path: Path) -> None:
        space = {"optimiser.lr": Dimension(choices=(1e-3, 1e30))}
        tables = {"name": "vimadmm", "local_steps": 1, "optimiser": {"kind": "sgd", "lr": 1e30}}
        outcome = search_settings(job(method=tables), small(), space, Budget(4, 3), tmp_path / "s.db")
        assert outcome.diverged >= 1
        assert outcome.usual is None
        assert outcome.chosen == ({"optimiser.lr": 1e-3} if outcome.diverged < 4 else {"optimiser.lr": 1e30})

    def test_without_anything_to_judge_by_it_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="evaluate_every above 0"):
            searched(tmp_path, job=job(training={"evaluate_every": 0}))


class TestSpace:
    @pytest.mark.parametrize("name", METHODS)
    def test_every_method_has_something_to_search_and_it_is_what_it_is_now(self, name: str) -> None:
        method = make_method(name)
        space, values = declared_space(method), flat(method.model_dump())
        assert space
        assert all(dimension.holds(values[key]) for key, dimension in space.items())
        assert not {key.rpartition(".")[2] for key in space} & {"bits", "theta", "trials", "cache", "damping"}
        for ends in ("low", "high"):  # all of the space can be built
            chosen = {key: getattr(d, ends) for key, d in space.items() if not d.choices}
            whole = {key: int(v) if space[key].whole else v for key, v in chosen.items()}
            with_settings(method, whole)

    def test_published_settings_are_searched_too(self) -> None:
        space = declared_space(make_method("vimadmm", preset="paper"))
        assert space["optimiser.lr"] == Dimension(1e-3, 1.0, log=True)  # plain SGD

    def test_a_decay_beyond_the_usual_ones_is_searched_around(self) -> None:
        space = declared_space(make_method("vimadmm", {"optimiser": {"kind": "adamw", "weight_decay": 0.3}}))
        assert space["optimiser.weight_decay"] == Dimension(1e-6, 3.0, log=True)

    def test_what_is_asked_for_goes_to_the_methods_that_have_it(self) -> None:
        methods = {name: make_method(name) for name in ("vimadmm", "fdml")}
        asked = ["rho=0.1:10:log", "local_steps=1:8", "optimiser.lr=0.1,0.2"]
        spaces = asked_space(methods, asked)
        steps, rates = Dimension(1, 8, whole=True), Dimension(choices=(0.1, 0.2))
        assert spaces["fdml"] == {"local_steps": steps, "optimiser.lr": rates}
        assert spaces["vimadmm"] == {"rho": Dimension(0.1, 10, log=True), "local_steps": steps, "optimiser.lr": rates}
        words = asked_space(methods, ["residual=before,auto", "combine=sum"])
        assert words["vimadmm"]["residual"].choices == ("before", "auto")

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("rho", "KEY=LOW:HIGH"),
            ("rh=1:2", "did you mean 'rho'?"),
            ("rho=2:1", "LOW below HIGH"),
            ("rho=0:1:log", "both above 0"),
            ("rho=1:2:lin", "LOW:HIGH:log"),
            ("rho=a:b", "LOW:HIGH"),
            ("local_steps=1:2.5", "whole numbers"),
        ],
    )
    def test_what_cannot_be_searched_is_refused(self, text: str, why: str) -> None:
        with pytest.raises(ConfigError, match=why.replace("?", r"\?")):
            asked_space({"vimadmm": make_method("vimadmm")}, [text])

    def test_a_method_without_any_of_the_settings_is_refused(self) -> None:
        methods = {name: make_method(name) for name in ("vimadmm", "fdml")}
        with pytest.raises(ConfigError, match="'fdml' has none"):
            asked_space(methods, ["rho=1:2"])


class TestPrivacy:
    noise: ClassVar = {"mechanism": "gaussian", "clip": 0.1, "sigma": 1.0}

    def test_without_evaluation_on_validation_rows_it_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="is a release that is not made"):
            searched(tmp_path, job=job(privacy=self.noise))

    def test_a_simulated_evaluation_is_said_to_be_a_release(self) -> None:
        told = price(PrivacySettings(**self.noise, evaluation="simulated"))
        assert told is not None
        assert "does not cover this search" in told
        assert price(PrivacySettings()) is None

    def test_what_all_trials_cost_together_is_counted_also_after_an_interruption(self, tmp_path: Path) -> None:
        private = job(privacy={**self.noise, "evaluation": "simulated"})
        searched(tmp_path, Budget(1, 2, (0, 1)), job=private)
        outcome = searched(tmp_path, Budget(2, 2, (0, 1)), job=private)
        figure = exact_epsilon(math.sqrt(2 * 2 * 2), 1e-5)  # trials, seeds, rounds, with sigma 1
        assert (
            f"4 trainings on the same rows cost, together: epsilon {figure:.4g} (exact accountant" in outcome.together
        )
        assert "unit PARTY" in outcome.together and "are not covered" in outcome.together
        assert searched(tmp_path / "plain", Budget(1, 2, (0,))).together == ""

    def test_searches_of_several_methods_on_the_same_rows_have_one_total(self, tmp_path: Path) -> None:
        """It is more than that of each: all of their trials trained on these rows."""
        private = job(privacy={**self.noise, "evaluation": "simulated"})
        one = searched(tmp_path / "one", Budget(1, 2, (0,)), job=private)
        two = searched(tmp_path / "two", Budget(2, 2, (0,)), job=private)
        figure = f"3 trainings on the same rows cost, together: epsilon {exact_epsilon(math.sqrt(6), 1e-5):.4g} (exact"
        assert figure in of_searches([one.spent, two.spent])
        assert one.together == of_searches([one.spent]) and of_searches([]) == ""
        assert "did not keep what they cost" in of_searches([one.spent, None])


class TestCommand:
    def test_the_cost_of_all_methods_is_told(self, cli: Call, config: Path) -> None:
        noise = '[privacy]\nmechanism = "gaussian"\nclip = 1.0\nsigma = 1.0\nevaluation = "simulated"\n'
        config.write_text(config.read_text() + noise)
        what = ["tune", config, "--method", "vimadmm", "--method", "vimadmm_j", "--trials", "1", "--rounds", "2"]
        done = cli(*what, "--out", "here")
        assert done.code == 0, done.err
        (total,) = [line for line in done.out.splitlines() if line.startswith("privacy of the search, all methods: ")]
        figure = f"2 trainings on the same rows cost, together: epsilon {exact_epsilon(2.0, 1e-5):.4g} (exact"
        assert figure in total and f"# {total}" in Path("here/best.toml").read_text()
        assert figure in cli(*what, "--out", "here", "--json").json["together"]

    def test_the_best_settings_are_a_configuration(self, cli: Call, config: Path) -> None:
        what = ["tune", config, "--method", "vimadmm", "--method", "local_only", "--trials", "2", "--rounds", "2"]
        done = cli(*what, "--out", "here", "--json")
        assert done.code == 0, done.err
        facts = done.json
        assert [m["method"] for m in facts["methods"]] == ["vimadmm", "local_only"]
        best = max(facts["methods"], key=lambda m: m["score"])
        trained = cli("train", "here/best.toml", "--out", "run", "--json")
        assert (trained.code, trained.json["method"], trained.json["rounds"]) == (0, best["method"], 6)
        compared = cli("compare", "here/best.toml", "--out", "both", "--json")
        assert [run["method"] for run in compared.json["runs"]] == ["vimadmm", "local_only"]
        again = cli(*what, "--out", "here")  # nothing left to do
        assert again.code == 0
        for word in ("validation", "optimiser.lr", "colonnade train here/best.toml"):
            assert word in again.out.lower()

    def test_convolutions_begin_with_the_optimiser_that_train_chooses_for_them(
        self, cli: Call, config: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        draw = torch.Generator().manual_seed(0)
        patches = {name: torch.randn(24, 3, 5, 5, generator=draw).numpy() for name in ("left", "right")}
        labels = (patches["left"].mean((1, 2, 3)) > 0).astype(int)
        federation = Federation.from_arrays(patches, labels, task="binary")
        monkeypatch.setattr(Job, "federation", lambda _: federation)
        same = ["--set", "model.encoder=cnn", "--set", "model.embedding=4", "--set", "method.local_steps=1"]
        done = cli("tune", config, *same, "--out", "here", "--trials", "1", "--rounds", "1")
        assert done.code == 0, done.err
        best = tomllib.loads(Path("here/best.toml").read_text())
        assert read_job(best).method.optimiser == FOR_CONVOLUTIONS

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            (["--search", "rh=1:2"], "did you mean 'rho'?"),
            (["--method", "vimadm"], "did you mean 'vimadmm'?"),
            (["--seeds", "x"], "needed whole numbers"),
            (["--set", "privacy.mechanism=gaussian", "--set", "privacy.clip=1", "--set", "privacy.sigma=1"], "release"),
        ],
    )
    def test_bad_input_is_one_sentence_and_leaves_nothing(
        self, cli: Call, config: Path, options: list[str], why: str
    ) -> None:
        done = cli("tune", config, "--out", "here", *options)
        assert (done.code, Path("here").exists()) == (2, False)
        assert why in done.err
        assert len(done.err.splitlines()) == 1

    def test_without_the_library_it_says_what_to_install(
        self, cli: Call, config: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "optuna", None)
        done = cli("tune", config, "--out", "here")
        assert (done.code, "pip install colonnade[tune]" in done.err) == (2, True)

    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_an_interruption_says_how_to_go_on(
        self, cli: Call, config: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int
    ) -> None:
        monkeypatch.setattr(Job, "fit", lambda *_: signal.raise_signal(number))
        with interruptible():
            done = cli("tune", config, "--out", "here")
        assert (done.code, "--out here" in done.err) == (status, True)


def test_the_best_method_by_a_loss_is_the_one_with_the_lowest() -> None:
    outcomes = [
        Outcome(name, {"rho": 1.0}, {"rho": 1.0}, score, None, 3, 0, "poisson_deviance")
        for name, score in (("vimadmm_j", 0.8), ("linear_admm", 0.9))
    ]
    written = best_toml(outcomes, {}, None)
    assert tomllib.loads(written)["method"]["name"] == "vimadmm_j"
    assert "# linear_admm: validation Poisson deviance 0.9000" in written


@pytest.mark.filterwarnings("ignore::colonnade.errors.DoubtfulScore")
def test_where_validation_rows_have_one_class_the_score_is_the_loss_that_judged(tmp_path: Path) -> None:
    whole = small(task="binary")
    yes = whole.split.validation[whole.labels[whole.split.validation, 0] > 0.5]
    federation = replace(whole, split=replace(whole.split, validation=yes))
    outcome = searched(tmp_path, Budget(trials=2, rounds=2), federation=federation)
    assert outcome.metric == "log_loss"
    assert outcome.score is not None and outcome.usual is not None and 0 < outcome.score <= outcome.usual


def test_tables_say_what_the_scores_are(cli: Call, config: Path) -> None:
    asked = ("--set", "training.metric=log_loss", "--trials", "2", "--rounds", "2", "--out", "here")
    done = cli("tune", config, *asked)
    assert done.code == 0, done.err
    assert "Validation scores (log loss), mean over seeds" in done.out
