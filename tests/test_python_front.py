"""Comparing, tuning and reporting from Python: what the command line does, with objects."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colonnade as cn
from colonnade.compare import Comparison, read_seeds
from colonnade.errors import ConfigError, RunError
from colonnade.methods import VIMADMM
from colonnade.models.optimise import AdamW
from colonnade.privacy.accounting import exact_epsilon, shift_of
from tests.federations import normed_encoder, small

NOISE = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0}
QUICK: dict[str, Any] = {"rounds": 3, "evaluate_every": 1}
GENTLE = VIMADMM(local_steps=2)


@pytest.fixture(scope="module")
def compared() -> Comparison:
    return cn.compare(small(), [GENTLE, "local_only"], seeds=2, **QUICK)


class TestCompare:
    def test_every_method_is_trained_with_every_seed(self, compared: Comparison) -> None:
        assert [(run.method.name, run.training.seed) for run in compared.runs] == [
            ("vimadmm", 0), ("vimadmm", 1), ("local_only", 0), ("local_only", 1),
        ]  # fmt: skip
        assert all(run.training.rounds == 3 for run in compared.runs)
        alone = cn.fit(small(), GENTLE, seed=1, **QUICK)
        assert compared.runs[1].fingerprint() == alone.fingerprint()

    def test_the_table_has_mean_and_deviation_over_the_seeds(self, compared: Comparison) -> None:
        scores = [run.score for run in compared.runs[:2]]
        line = compared.table[0]
        assert (line["method"], line["seeds"], line["score"]) == ("vimadmm", 2, "accuracy")
        assert line["test_score"] == pytest.approx(np.mean(scores))
        assert line["std"] == pytest.approx(np.std(scores, ddof=1))
        frame = compared.to_frame()
        assert list(frame.index) == ["vimadmm", "local_only"]
        assert frame.loc["vimadmm", "test_score"] == frame.loc["vimadmm", "accuracy"] == line["test_score"]
        assert frame.loc["local_only", "log_loss"] == compared.table[1]["metrics"]["log_loss"]["mean"]

    def test_it_is_shown_in_one_line(self, compared: Comparison) -> None:
        shown = repr(compared)
        assert shown.startswith("<Comparison on small: vimadmm accuracy 0.")
        assert len(shown) < 200

    def test_its_report_has_all_runs(self, compared: Comparison, tmp_path: Path) -> None:
        page = compared.report(tmp_path)
        assert page == tmp_path / "report.html"
        said = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert len(said["runs"]) == 4

    def test_in_a_folder_it_goes_on_where_it_was(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        options: dict[str, Any] = {"seeds": [3, 4], "encoders": normed_encoder, "out": tmp_path / "c", **QUICK}
        first = cn.compare(small(), [GENTLE], **options)
        assert {path.name for path in (tmp_path / "c").iterdir() if path.is_dir()} == {"vimadmm-3", "vimadmm-4"}
        monkeypatch.setattr("colonnade.job.Job.fit", lambda *_: pytest.fail("a finished run was trained again"))
        again = cn.compare(small(), [GENTLE], **options)
        assert [run.fingerprint() for run in again.runs] == [run.fingerprint() for run in first.runs]

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"federation": small(seed=1)}, "holds a run of other settings .data.rows"),
            ({"methods": [VIMADMM(local_steps=3)]}, "local_steps = 2, now 3"),
            ({"rounds": 4}, "rounds = 3, now 4"),
        ],
        ids=["rows", "method", "training"],
    )
    def test_a_folder_of_another_comparison_is_refused(self, change: dict[str, Any], told: str, tmp_path: Path) -> None:
        call = {"federation": small(), "methods": [GENTLE], "seeds": 1, "out": tmp_path / "c", **QUICK}
        cn.compare(**call)
        with pytest.raises(RunError, match=told):
            cn.compare(**{**call, **change})

    def test_a_folder_of_something_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "letter.txt").write_text("mine", encoding="utf-8")
        with pytest.raises(RunError, match="already exists and is no comparison"):
            cn.compare(small(), ["vimadmm"], out=tmp_path, **QUICK)
        assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]

    def test_one_method_with_two_settings_is_two_lines(self) -> None:
        found = cn.compare(small(), [GENTLE, VIMADMM(local_steps=1)], seeds=1, **QUICK)
        assert len(found.table) == 2
        assert len({line["method"] for line in found.table}) == 2


WRONG = {
    "no list": (lambda: cn.compare(small(), "vimadmm"), "compare needs a list of methods"),
    "no method": (lambda: cn.compare(small(), []), "at least one method"),
    "unknown method": (lambda: cn.compare(small(), ["vimadm"]), "did you mean 'vimadmm'"),
    "the same twice": (lambda: cn.compare(small(), ["vimadmm", VIMADMM()]), "named twice with the same settings"),
    "a seed": (lambda: cn.compare(small(), ["vimadmm"], seed=3), r"say seeds=\[...\] instead of seed="),
    "a seed in the training": (
        lambda: cn.compare(small(), ["vimadmm"], training=cn.Training(rounds=1, seed=3)),
        r"leave seed = 3 out of training=, and say seeds=\[...\]",
    ),
    "no seeds": (lambda: cn.compare(small(), ["vimadmm"], seeds=0), "seeds = 0: needed how many"),
    "seeds twice": (lambda: cn.compare(small(), ["vimadmm"], seeds=[1, 1]), "without repetitions"),
    "a setting of a method": (lambda: cn.compare(small(), ["vimadmm"], rho=1.0), "'rho' is a setting of vimadmm"),
    "no federation": (lambda: cn.compare({}, ["vimadmm"]), "compare needs a Federation first; got dict"),
    "no trials": (lambda: cn.tune(small(), "vimadmm", trials=0), "trials = 0: needed at least 1"),
    "no federation to tune on": (lambda: cn.tune({}, "vimadmm"), "tune needs a Federation first; got dict"),
    "a list to search": (lambda: cn.tune(small(), "vimadmm", search=["rho"]), "search needs values by setting"),
    "values to search": (lambda: cn.tune(small(), "vimadmm", search={"rho": 3}), r"search rho: needed \(low, high\)"),
    "unknown setting to search": (lambda: cn.tune(small(), "vimadmm", search={"roh": (1, 2)}), "did you mean 'rho'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_one_sentence_about(what: str) -> None:
    call, told = WRONG[what]
    with pytest.raises(ConfigError, match=told) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_seeds_are_a_number_or_a_list() -> None:
    assert read_seeds(3) == [0, 1, 2]
    assert read_seeds([7, 3]) == [7, 3]


class TestTune:
    def test_the_best_settings_train_a_run(self) -> None:
        space = {"rho": (0.1, 10.0, "log"), "local_steps": [1, 2]}
        best = cn.tune(small(), GENTLE, trials=4, search=space, **QUICK)
        assert set(best.settings) == {"rho", "local_steps"}
        assert best.before is not None
        assert best.score >= best.before
        assert (best.method.rho, best.method.local_steps) == tuple(best.settings.values())  # type: ignore[attr-defined]
        assert best.warning is None
        assert repr(best).startswith("<Tuned vimadmm: validation accuracy 0.")
        run = best.fit()
        assert run.method == best.method
        assert run.training.rounds == 3
        assert run.score is not None
        assert run.result["validation_score"] == pytest.approx(best.score)
        assert best.fit(rounds=4).training.rounds == 4

    def test_keywords_are_the_first_trial(self) -> None:
        best = cn.tune(
            small(), "vimadmm", trials=1, search={"rho": (0.1, 10.0)}, rho=0.7, local_steps=2, lr=0.02, **QUICK
        )
        assert best.settings == {"rho": 0.7}
        assert best.method == VIMADMM(
            rho=0.7, local_steps=2, optimiser=VIMADMM().optimiser.model_copy(update={"lr": 0.02})
        )
        assert best.before == best.score

    def test_in_a_folder_it_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        call: dict[str, Any] = {"search": {"rho": (0.1, 10.0)}, "out": tmp_path / "t", **QUICK}
        first = cn.tune(small(), GENTLE, trials=2, **call)
        monkeypatch.setattr("colonnade.job.Job.fit", lambda *_: pytest.fail("a finished trial was repeated"))
        assert cn.tune(small(), GENTLE, trials=2, **call).outcome == first.outcome
        with pytest.raises(RunError, match="holds a search of vimadmm on other terms"):
            cn.tune(small(seed=1), GENTLE, trials=2, **call)

    def test_every_trial_diverged(self) -> None:
        absurd = VIMADMM(optimiser=AdamW(lr=1e30), head_update="sgd", residual="before", local_steps=5)
        with pytest.raises(RunError, match="every trial diverged"):
            cn.tune(small(), absurd, trials=1, search={"rho": (0.5, 2.0)}, dtype="float32", rounds=20)


class TestReport:
    def test_runs_and_folders_are_the_same(self, tmp_path: Path) -> None:
        run = cn.fit(small(), GENTLE, out=tmp_path / "run", **QUICK)
        pages = [cn.report(what, tmp_path / name) for name, what in (("a", run), ("b", tmp_path / "run"), ("c", [run]))]
        assert len({page.read_text(encoding="utf-8") for page in pages}) == 1

    @pytest.mark.parametrize("what", [[], [3]])
    def test_what_is_no_run_is_refused(self, what: Any, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="report needs"):
            cn.report(what, tmp_path / "page")
        assert not (tmp_path / "page").exists()


class TestEpsilon:
    def test_there_is_none_without_noise(self) -> None:
        run = cn.fit(small(), GENTLE, rounds=2)
        assert run.epsilon is None
        assert run.label_epsilon is None
        assert cn.fit(small(), "centralized", rounds=2).epsilon is None

    def test_it_comes_with_all_that_belongs_to_it(self) -> None:
        run = cn.fit(small(), GENTLE, rounds=3, privacy=NOISE)
        found = run.epsilon
        assert found is not None
        assert float(found) == found.value == exact_epsilon(shift_of(5.0, 3), 1e-5)
        assert (found.unit, found.delta, found.neighbours, found.accountant) == ("PARTY", 1e-5, "absent", "exact")
        assert found.bounded
        for part in (f"epsilon {found.value:.3f}", "delta 1e-05", "unit PARTY", "exact accountant", "training only"):
            assert part in str(found)
        assert "predictions" in str(found)
        assert any("the replies reveal the training labels" in line for line in found.not_covered)
        with pytest.raises(TypeError):
            f"{found:.2f}"

    def test_labels_have_one_of_their_own(self) -> None:
        promise = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}
        run = cn.fit(small(), GENTLE, rounds=2, privacy=promise)
        assert run.epsilon is None, "the columns were not noised"
        found = run.label_epsilon
        assert found is not None
        assert (float(found), found.delta, found.unit) == (2.0, 0.0, "LABEL")
        assert "unit LABEL" in str(found)

    def test_noise_that_no_accountant_knows_has_no_bound(self) -> None:
        from tests.mechanisms import Noise

        found = cn.fit(small(), GENTLE, rounds=2, mechanism=Noise()).epsilon
        assert found is not None
        assert math.isinf(float(found))
        assert not found.bounded
        assert "which no accountant here knows" in str(found)

    def test_a_loaded_run_says_the_same(self, tmp_path: Path) -> None:
        run = cn.fit(small(), GENTLE, rounds=2, privacy=NOISE, out=tmp_path / "run")
        assert cn.Run.load(tmp_path / "run").epsilon == run.epsilon


class Texts(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style"}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


class TestNotebook:
    def test_a_run_says_how_good_it_is_and_what_is_promised(self) -> None:
        run = cn.fit(small(), GENTLE, privacy={**NOISE, "evaluation": "simulated"}, **QUICK)
        seen = Texts(run._repr_html_())
        text = " ".join(seen.texts)
        assert seen.tags <= {"div", "b", "table", "tr", "th", "td"}
        assert "vimadmm on small" in text
        assert "Test accuracy" in text
        assert "95 % interval" in text
        assert "always guessing" in text
        assert f"epsilon {float(run.epsilon):.3f}" in text  # type: ignore[arg-type]
        assert "unit PARTY" in text

    def test_names_are_escaped_and_no_row_is_shown(self) -> None:
        evil = '<script>alert("x")</script>'
        columns = {evil: np.full((40, 2), 123.456), "other": np.arange(40.0)}
        federation = cn.Federation.from_arrays(columns, [evil, "no"] * 20, name=evil)
        run = cn.fit(federation, GENTLE, rounds=2)
        for page in (federation._repr_html_(), run._repr_html_(), run.model._repr_html_()):
            seen = Texts(page)
            assert "script" not in seen.tags
            assert evil in " ".join(seen.texts)
            assert "123.456" not in page

    def test_a_model_says_what_is_promised(self) -> None:
        text = " ".join(Texts(cn.fit(small(), GENTLE, rounds=2).model._repr_html_()).texts)
        assert "Model: vimadmm, 2 rounds" in text
        assert "no epsilon" in text

    def test_a_federation_says_who_holds_what(self) -> None:
        text = " ".join(Texts(small()._repr_html_()).texts)
        assert "party_0 (5 columns)" in text
        assert "54 training, 18 validation and 18 test rows" in text

    def test_a_comparison_is_a_table(self, compared: Comparison) -> None:
        text = Texts(compared._repr_html_()).texts
        assert any(cell.startswith("vimadmm") for cell in text)
        assert any(cell.startswith("local_only") for cell in text)
