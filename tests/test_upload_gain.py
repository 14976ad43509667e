"""What uploads contribute: a run beside itself without their signal, and beside `local_only`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from colonnade import fit
from colonnade.errors import RunError
from colonnade.evaluate.answers import Answers, Evaluated
from colonnade.evaluate.metrics import METRICS
from colonnade.evaluate.paired import paired_interval
from colonnade.federation import Federation, RowSplit
from colonnade.methods import make_method
from colonnade.privacy.bounded import BoundedGaussian
from colonnade.privacy.gaussian import Gaussian, SeededNoise
from colonnade.privacy.mechanism import Hiding, Mechanism, Protection, Unchanged
from colonnade.privacy.pbm import PoissonBinomial
from colonnade.privacy.promise import UploadGain
from colonnade.privacy.silence import without_signal
from colonnade.report.content import content
from colonnade.report.html import render
from colonnade.report.record import Record, read_records
from colonnade.report.uploads import HOW, sentences, told_of_uploads
from colonnade.report.words import noise
from colonnade.run import Run, read_record
from colonnade.tasks import Task
from colonnade.upload_gain import REMOVED, _Comparison, answers_of, difference, local_method, unwatched, upload_gain
from colonnade.wire.messages import Purpose
from tests.cli.conftest import Call, Result, cli, config
from tests.federations import small
from tests.mechanisms import Noise
from tests.report.test_page import Reader

__all__ = ["cli", "config"]  # fixtures
DP: dict[str, Any] = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0, "evaluation": "simulated"}
LABELS = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}
SEED = SeededNoise(7)
NOISY = '[privacy]\nmechanism = "gaussian"\nclip = 0.01\nsigma = 9.0\nevaluation = "simulated"\n'


def trained(
    privacy: dict[str, Any], method: str = "vimadmm_j", federation: Federation | None = None, **more: Any
) -> Run:
    settings = {"rounds": 4, "evaluate_every": 2, "schedule": {"batch": 20}, "progress": False} | more
    return fit(federation or small(), make_method(method, {"local_steps": 1}), privacy=privacy, **settings)


# -- removing the signal --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "nothing"),
    [
        (Gaussian(1.0, 2.0, SEED), 0.0),
        (BoundedGaussian(1.0, 2.0, 3, SEED), 0.0),
        (PoissonBinomial(16, 0.25, 3, SEED), 8.0),  # a count of half of the trials says nothing
        (Unchanged(), 0.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_leaves_is_the_mechanism_s_release_of_nothing(mechanism: Mechanism, nothing: float) -> None:
    silent = without_signal(Protection(mechanism)).training
    uploads = [{"h": scale * torch.arange(24.0).reshape(2, 4, 3)} for scale in (1.0, 5.0)]
    released = [silent(upload, ("a", "b"), 3, "TRAIN.0")["h"] for upload in uploads]
    plain = mechanism({"h": torch.full((2, 4, 3), nothing)}, ("a", "b"), 3, "TRAIN.0")["h"]
    assert torch.equal(released[0], released[1]) and torch.equal(released[0], plain)
    assert silent.event == mechanism.event and not isinstance(silent, Hiding)


@pytest.mark.parametrize(
    "privacy",
    [DP, {**DP, "secure_sum": {"use": True}}, LABELS, {**DP, **LABELS, "evaluation": "none"}],
    ids=["noise", "sum", "labels", "both"],
)
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_no_column_reaches_the_uploads_and_nothing_else_changes(privacy: dict[str, Any], engine: str) -> None:
    run = trained(privacy, engine=engine)
    other = replace(small(), parties=tuple(replace(p, columns=p.columns.flip(0) * 3) for p in small().parties))
    silent = [_Comparison(run, data, unwatched)._removed(0) for data in (small(), other)]
    sent = [[r.digest for r in one.ledger if r.purpose is Purpose.TRAIN and r.owner in run.models] for one in silent]
    assert sent[0] and sent[0] == sent[1]  # the same bytes, whatever the columns are
    told = [[(r.owner, r.event, r.purpose, r.number, r.rows) for r in one.ledger] for one in (run, silent[0])]
    assert told[0] == told[1]  # as many rounds, the same noise, the same promise
    assert silent[0].fingerprint() != run.fingerprint()


def test_noise_in_the_model_cannot_be_parted_from_the_signal() -> None:
    run = fit(small(), make_method("linear_admm", {"noise": 0.1}), rounds=3, progress=False)
    found = upload_gain(run, small())
    assert found["gain"] is None and found["over_local"] is not None
    (note,) = found["notes"]
    assert note == "signal removed was not measured: linear_admm has its noise in the model, which makes the uploads"


def test_a_mechanism_that_is_not_stored() -> None:
    run = fit(small(), make_method("vimadmm_j", {}), rounds=2, mechanism=Noise(), progress=False)
    assert "a mechanism of your own" in upload_gain(run, small())["notes"][0]


# -- the comparison -------------------------------------------------------------------------------


def test_a_loaded_run_says_the_same_and_keeps_it(tmp_path: Path) -> None:
    run = trained(DP, out=tmp_path / "run")
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    loaded = Run.load(tmp_path / "run")
    names: list[str] = []
    found = loaded.upload_gain(small(), watch=lambda name, rounds: names.append(f"{name} {rounds}"))
    assert names == ["signal removed 4", "local_only 4"]
    assert found == upload_gain(run, small()) == run.result["uploads"]
    assert found["score"] == pytest.approx(run.score) and found["seeds"] == [0] and found["noise"]
    assert read_record(tmp_path / "run")["result"]["uploads"] == json.loads(json.dumps(found))
    assert Run.load(tmp_path / "run").result["uploads"] == json.loads(json.dumps(found))
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before  # nobody was sent anything
    alone = trained(DP, "local_only")
    assert found["local_only"] == pytest.approx(alone.score)
    line = told_of_uploads(read_records([tmp_path / "run"])[0])
    assert line.startswith("The uploads contributed ") and "local_only has" in line
    assert line in Reader(render(read_records([tmp_path / "run"]))).text


def test_without_an_evaluation_of_its_own(tmp_path: Path) -> None:
    run = trained({**DP, "evaluation": "none"}, out=tmp_path / "run")
    found = upload_gain(run, small())
    assert run.score is None and not found["evaluated"] and found["score"] is not None
    assert not [r for r in run.ledger if r.purpose is not Purpose.TRAIN]
    assert "the run itself lets nothing leave for evaluation" in sentences(found)[-1]


def test_under_label_privacy_alone_all_of_the_uploads_are_removed() -> None:
    found = upload_gain(trained(LABELS), small())
    assert not found["noise"] and "with zeros in their place" in sentences(found)[0]


def test_several_seeds() -> None:
    run = trained(DP)
    found = upload_gain(run, small(), seeds=[0, 3])
    other = trained(DP, seed=3)
    assert found["seeds"] == [0, 3]
    assert found["score"] == pytest.approx(((run.score or 0) + (other.score or 0)) / 2)


def test_local_only_has_the_settings_of_the_configuration() -> None:
    run = trained(DP)
    assert local_method(run) == make_method("local_only", {"local_steps": 1})
    run.config = {"compare": {"local_only": {"smoothing": 0.1}}}
    assert local_method(run) == make_method("local_only", {"local_steps": 1, "smoothing": 0.1})


def test_what_is_refused(tmp_path: Path) -> None:
    run = trained(DP)
    with pytest.raises(RunError, match="other data"):
        upload_gain(run, small(seed=5))
    with pytest.raises(RunError, match="started from Python"):
        upload_gain(run)
    with pytest.raises(RunError, match="no party uploaded anything in training"):
        upload_gain(trained(DP, "local_only"), small())
    split = small().split
    untested = replace(small(), split=RowSplit(split.train, split.validation, split.test[:0]))
    with pytest.raises(RunError, match="no test rows"):
        upload_gain(trained(DP, federation=untested), untested)
    run.about["engine"] = "nats"
    with pytest.raises(RunError, match=r"every party has to agree to.*name = 'local_only'"):
        upload_gain(run, small())


def test_a_model_that_is_not_the_recorded_one_is_refused(tmp_path: Path) -> None:
    run = Run.load(trained(DP, out=tmp_path / "run").path or tmp_path)
    run.result["test_score"] = 0.0 if (run.score or 0) > 0.1 else 0.9
    with pytest.raises(RunError, match="was recorded"):
        answers_of(run, small())


# -- how sure -------------------------------------------------------------------------------------


def _evaluated(right: int, task: Task) -> Evaluated:
    truth = torch.zeros(200, dtype=torch.long)
    outputs = torch.zeros(200, task.outputs)
    outputs[:right, 0], outputs[right:, 1] = 1, 1
    return Evaluated(task, Answers(outputs, outputs), truth)


def test_the_spread_between_seeds_widens_the_interval() -> None:
    task, metric = small().task, METRICS["accuracy"]
    theirs = [_evaluated(100, task)] * 2
    alike, apart = ([_evaluated(n, task) for n in rights] for rights in ((120, 120), (100, 140)))
    rows = paired_interval(metric, alike, theirs)
    same, wide = difference(metric, alike, theirs), difference(metric, apart, theirs)
    assert same is not None and wide is not None and same["value"] == pytest.approx(wide["value"]) == pytest.approx(0.1)
    assert same["interval"] == pytest.approx(rows) and same["interval"] and same["interval"][0] > 0
    assert wide["interval"] and wide["interval"][0] < -1 and wide["interval"][1] > 1  # two seeds: t of 12.7


GAIN: UploadGain = {
    "metric": "accuracy", "rows": 359, "seeds": [0, 1], "noise": True, "evaluated": True, "score": 0.95,
    "removed": 0.949, "local_only": 0.97, "gain": {"value": 0.001, "interval": [-0.01, 0.02], "paired": True},
    "over_local": {"value": -0.02, "interval": [-0.03, -0.01], "paired": True}, "notes": [],
}  # fmt: skip


def test_the_sentences() -> None:
    first, nothing, local = sentences(GAIN)
    assert first == (
        "The uploads contributed +0.10 points (95 % interval -1.00 to +2.00): test accuracy 95.00 % with them, 94.90 % "
        "with their signal removed and the noise kept, means of 2 seeds."
    )
    assert nothing == "That is nothing that 359 test rows and these seeds could show."
    assert local.startswith("local_only has 97.00 %, +2.00 points (95 % interval +1.00 to +3.00): it gives more and")
    clear: UploadGain = {**GAIN, "gain": {"value": 0.05, "interval": [0.01, 0.09], "paired": True}, "seeds": [0]}
    assert "could show" not in " ".join(sentences(clear)) and "one seed cannot tell" in sentences(clear)[-1]
    better: UploadGain = {**GAIN, "over_local": {"value": 0.05, "interval": [0.01, 0.09], "paired": True}}
    assert "the joint training gives more" in sentences(better)[-1]
    even: UploadGain = {**GAIN, "over_local": {"value": 0.05, "interval": [-0.01, 0.09], "paired": True}}
    assert "no difference that these rows could show, and it protects more" in sentences(even)[-1]


def test_a_verdict_says_that_parties_alone_are_better(tmp_path: Path) -> None:
    trained(DP, out=tmp_path / "run")
    record = read_records([tmp_path / "run"])[0]
    for interval, told in (([-0.03, -0.01], True), ([-0.03, 0.01], False), ([0.01, 0.03], False)):
        found: UploadGain = {**GAIN, "over_local": {"value": sum(interval) / 2, "interval": interval, "paired": True}}
        changed = cast(Record, {**record, "result": {**record["result"], "uploads": found}})
        verdict = content([changed]).facts["verdict"]
        assert ("But local_only is better, with 97.00 %, and it sends nothing" in verdict) == told


@pytest.mark.parametrize(("labels", "told"), [({}, "on uploads of training only; labels"), (LABELS, "and on labels;")])
def test_what_noise_covers_is_said_of_labels_too(labels: dict[str, Any], told: str, tmp_path: Path) -> None:
    trained({**DP, **labels}, out=tmp_path / "run")
    assert told in noise(read_records([tmp_path / "run"])[0])


def test_where_lower_is_better_a_gain_is_still_a_gain() -> None:
    lower: UploadGain = {**GAIN, "metric": "rmse", "gain": {"value": -2.0, "interval": [-3.0, -1.0], "paired": True}}
    assert sentences(lower)[0].startswith("The uploads contributed +2.0000 of ")
    assert "(95 % interval +1.0000 to +3.0000)" in sentences(lower)[0]
    assert "could show" not in " ".join(sentences(lower)[:1])


def test_a_private_run_that_was_not_compared_says_so(tmp_path: Path) -> None:
    for name, privacy, method in (("noise", DP, "vimadmm_j"), ("none", {}, "vimadmm_j"), ("alone", DP, "local_only")):
        trained(privacy, method, out=tmp_path / name)
    told = {name: told_of_uploads(read_records([tmp_path / name])[0]) for name in ("noise", "none", "alone")}
    assert told["noise"].startswith("What the uploads contributed was not measured") and told["noise"].endswith(HOW)
    assert told["none"] == told["alone"] == ""


# -- the command line -----------------------------------------------------------------------------


def test_train_measures_it_unless_told_not_to(cli: Call, config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text() + NOISY)
    done: Result = cli("train", config, "--out", "run")
    assert done.code == 0 and "The uploads contributed" in done.out and "--no-compare leaves it out" in done.err
    assert read_record(Path("run"))["result"]["uploads"]["seeds"] == [0]
    explained = cli("privacy", "explain", "run")
    assert "The uploads contributed" in explained.out
    assert cli("privacy", "explain", "run", "--json").json["uploads"]["metric"] == "accuracy"
    left = cli("train", config, "--out", "left", "--no-compare")
    assert left.code == 0 and "colonnade privacy compare left" in left.out
    assert "uploads" not in read_record(Path("left"))["result"]
    again = cli("privacy", "compare", "left", "--json")
    assert again.code == 0, again.err
    assert {**again.json, "run": ""} == {"run": "", **read_record(Path("run"))["result"]["uploads"]}
    more = cli("privacy", "compare", "left", "--seeds", "1")
    assert "means of 2 seeds" in more.out and read_record(Path("left"))["result"]["uploads"]["seeds"] == [0, 1]


def test_a_plain_training_is_not_followed_by_others(cli: Call, config: Path) -> None:
    done = cli("train", config, "--out", "run")
    assert done.code == 0 and "uploads contributed" not in done.out and REMOVED not in done.err


def test_interrupted_the_run_is_complete(cli: Call, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    config.write_text(config.read_text() + NOISY)
    monkeypatch.setattr("colonnade.upload_gain.upload_gain", stopped)
    done = cli("train", config, "--out", "run")
    assert done.code == 130 and "the run is complete in run; " in done.err and "privacy compare run" in done.err
    assert read_record(Path("run"))["result"]["test_score"] is not None
    shutil.rmtree("run")
