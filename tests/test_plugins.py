"""Methods, tasks, metrics, local models of other packages: found by name, used like our own, harmless where broken."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from colonnade import methods, tasks
from colonnade.config import build
from colonnade.errors import ConfigError, PluginLeftOut
from colonnade.evaluate import metrics
from colonnade.models import encoders
from colonnade.plugins import Table
from colonnade.privacy import registry
from colonnade.privacy.events import OtherEvent, Unit
from colonnade.run import Run
from tests.site import PLUGIN, inside, install, install_toy

CONFIG = """
[data]
set = "digits"
parties = 2
[method]
name = "shared_slope"
[model]
hidden = 12
embedding = 6
[training]
rounds = 6
evaluate_every = 2
metric = "error_rate"
schedule = { batch = 512 }
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_toy(tmp_path_factory.mktemp("site"))


def table(kind: str) -> Table[Any]:
    """A table that has not looked for entry points yet."""
    module: Any = {
        "methods": methods,
        "tasks": tasks,
        "metrics": metrics,
        "mechanisms": registry,
        "local_models": encoders,
    }[kind]
    return Table(f"colonnade.{kind}", module.BUILT_IN, module._wrong)


class TestAWholePackage:
    def test_it_keeps_the_contracts(self, site: Path, tmp_path: Path) -> None:
        """In a project of its own, as its author would test it."""
        project = tmp_path / "project"
        shutil.copytree(PLUGIN, project, ignore=shutil.ignore_patterns("__pycache__"))
        run = "import pytest; print(int(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests'])))"
        *said, status = inside(site, project, run).splitlines()
        assert status == "0", "\n".join(said)[-3000:]
        assert " passed" in "".join(said)
        assert "skipped" not in "".join(said)

    def test_it_trains_compares_and_is_loaded_reported_and_missed_in_other_processes(
        self, site: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "job.toml").write_text(CONFIG, encoding="utf-8")
        commands = (
            "from colonnade.cli.main import app;"
            "app(['train', 'job.toml', '--out', 'run', '--json'], standalone_mode=False);"
            "app(['compare', 'job.toml', '--methods', 'shared_slope,local_only', '--json'], standalone_mode=False)"
        )
        told, compared = map(json.loads, inside(site, tmp_path, commands).splitlines())
        assert (told["method"], told["score"]) == ("shared_slope", "error rate")
        assert [one["method"] for one in compared["summary"]] == ["shared_slope", "local_only"]
        use = (
            "import colonnade as cn; run = cn.Run.load('run'); print(run.method.name, run.fingerprint());"
            "from colonnade.testing import small;"
            "tried = cn.fit(small(), 'shared_slope', rounds=2, lr=0.02);"
            "assert tried.method.optimiser.lr == 0.02; from colonnade.cli.main import app;"
            "app(['report', 'run'], standalone_mode=False)"
        )
        assert inside(site, tmp_path, use).startswith("shared_slope ")
        page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
        assert "shared_slope" in page
        assert "error rate" in page
        with pytest.raises(ConfigError, match="unknown method 'shared_slope'"):
            Run.load(tmp_path / "run")  # here, where the package is not installed


class TestTables:
    def test_what_a_package_offers_is_beside_what_is_built_in(
        self, site: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(site)
        for kind, name in (
            ("methods", "shared_slope"), ("tasks", "share"), ("metrics", "error_rate"), ("local_models", "halfway"),
        ):  # fmt: skip
            found = table(kind)
            assert name in found
            assert list(found) == [*found.builtin, name]
            assert len(found) == len(found.builtin) + 1
            assert found[name].name == name
            assert found.get(name) is found[name], "loaded once"
            assert found.usable().keys() == set(found)

    def test_nothing_is_loaded_before_it_is_asked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install(tmp_path, "broken", {"colonnade.methods": {"odd": "no_such_module:Odd"}})
        monkeypatch.syspath_prepend(tmp_path)
        found = table("methods")
        assert "odd" in found
        assert found["vimadmm"] is methods.VIMADMM

    @pytest.mark.parametrize(
        ("kind", "name", "target", "told"),
        [
            ("methods", "odd", "no_such_module:Odd", r"cannot be loaded \(ModuleNotFoundError: No module named"),
            ("methods", "odd", "colonnade.errors:DataError", "needs to be a class of settings"),
            ("methods", "odd", "colonnade.run:Training", "lacks name, needs_uploads, exposes"),
            ("methods", "odd", "colonnade.methods:VIMADMM", "calls itself 'vimadmm'; the name of its entry point"),
            ("tasks", "odd", "colonnade.run:Training", "needs to be a subclass of colonnade.tasks.Task"),
            ("tasks", "odd", "colonnade.tasks:Task", "lacks by_kind, constant"),
            ("mechanisms", "odd", "colonnade.run:Training", "needs to be a subclass of colonnade.privacy.events.Event"),
            ("mechanisms", "odd", "colonnade.privacy.events:PlainEvent", "calls itself 'none'"),
            ("local_models", "odd", "colonnade.models.encoders:NETWORKS", "needs to be a class, or a function of"),
            ("local_models", "odd", "colonnade.models.ridge:Ridge", "calls itself None; the name of its entry point"),
            ("metrics", "odd", "colonnade.evaluate.metrics:accuracy", "needs to be a colonnade.evaluate"),
        ],
    )  # fmt: skip
    def test_a_broken_one_is_one_sentence_and_costs_nobody_else(
        self, kind: str, name: str, target: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(tmp_path, "their-package", {f"colonnade.{kind}": {name: target}})
        monkeypatch.syspath_prepend(tmp_path)
        found = table(kind)
        with pytest.raises(ConfigError, match=f"'odd' of colonnade.{kind}, from the package their-package, {told}"):
            found[name]
        with pytest.warns(PluginLeftOut, match="their-package"):
            assert found.usable() == dict(found.builtin)

    def test_a_built_in_name_cannot_be_taken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install(tmp_path, "their-package", {"colonnade.methods": {"vimadmm": "evil:Method"}})
        monkeypatch.syspath_prepend(tmp_path)
        found = table("methods")
        with pytest.warns(PluginLeftOut, match="their-package offers 'vimadmm'.*a built-in name"):
            assert found["vimadmm"] is methods.VIMADMM
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert list(found) == list(methods.BUILT_IN), "said once"

    def test_two_packages_with_one_name_are_refused_by_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("first", "second"):
            install(tmp_path, name, {"colonnade.methods": {"odd": f"{name}:Odd"}})
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(
            ConfigError, match=r"'odd' of colonnade\.methods is offered by first and second; remove one"
        ):
            table("methods")["odd"]

    def test_a_local_model_cannot_take_the_name_of_a_network(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(tmp_path, "their-package", {"colonnade.local_models": {"mlp": "evil:Model"}})
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(encoders, "REGRESSORS", table("local_models"))
        settings = encoders.ModelSettings(encoder="mlp")
        assert settings.gradients
        assert isinstance(encoders.build_local(settings, (3,), 0, "bank"), nn.Module)

    def test_a_local_model_of_no_package_is_refused_with_a_suggestion(self) -> None:
        with pytest.raises(ConfigError, match=r"encoder = 'rigde' is not valid: no local model .* mean 'ridge'\?"):
            build(encoders.ModelSettings, {"encoder": "rigde"}, "model")

    def test_metrics_of_a_task_leave_a_broken_one_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install(tmp_path, "their-package", {"colonnade.metrics": {"odd": "no_such_module:Odd"}})
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(metrics, "METRICS", table("metrics"))
        task = tasks.find_task("binary")(1)
        with pytest.warns(PluginLeftOut, match="their-package"):
            assert metrics.choose_metric(task, "auc").name == "auc"

    def test_a_ledger_is_read_although_the_package_of_a_mechanism_is_broken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(tmp_path, "their-package", {"colonnade.mechanisms": {"odd": "no_such_module:Odd"}})
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(registry, "ALONE", table("mechanisms"))
        with pytest.warns(PluginLeftOut, match="their-package.*count as those of an unknown mechanism"):
            event, _ = registry.read_event.__wrapped__("odd", Unit.PARTY, ())
        assert isinstance(event, OtherEvent)
