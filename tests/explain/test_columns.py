"""What columns and parties add to a score, held against slower ways to find the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from colonnade import Federation, Part, fit
from colonnade.data.bins import Bins
from colonnade.errors import ConfigError, DataError
from colonnade.explain.attribute import attribute
from colonnade.explain.columns import order_of
from colonnade.explain.shares import share_in_model, share_of_part
from colonnade.methods import BUILT_IN, make_method
from colonnade.methods.base import Traceable
from colonnade.privacy.settings import PrivacySettings
from colonnade.wire.messages import Purpose
from tests.contracts.registry import make
from tests.explain.shoppers import shoppers, trained
from tests.federations import small
from tests.local_models import Stumps
from tests.trainers import TINY

TRACEABLE = [name for name in BUILT_IN if isinstance(make_method(name), Traceable)]
OWN_HEADS = ["vimadmm_j", "linear_admm", "fdml", "adavfl", "fu", "local_only", "one_message", "assisted_boosting"]


@pytest.mark.parametrize("method", TRACEABLE)
def test_the_parties_shares_are_what_they_upload_and_add_up_to_the_score(method: str) -> None:
    """A share is computed beside the gate; it must be what passes the gate in a prediction."""
    federation = small(widths=(3, 3, 2), rows=40, classes=3)
    model = fit(federation, make(method, local_steps=5), rounds=2, model=TINY, dtype="float64", progress=False).model
    rows = federation.select(range(7))
    shares = [share_in_model(model, party)(rows.columns[party].double()) for party in federation.names]
    by_party = model.contributions(rows)
    torch.testing.assert_close(by_party.values, torch.stack(shares, dim=1).detach(), rtol=0, atol=1e-9)
    torch.testing.assert_close(by_party.base + sum(shares), model.logits(rows), rtol=0, atol=1e-9)
    if method in OWN_HEADS:
        part = model.part("party_1")
        uploaded = part.predict(rows.columns["party_1"])["o"]
        torch.testing.assert_close(share_of_part(part)(rows.columns["party_1"].double()).detach(), uploaded)
    else:
        with pytest.raises(ConfigError, match=f"{method} keeps the heads at the coordinator: what party 'party_1'"):
            share_of_part(model.part("party_1"))


class TestContributions:
    @pytest.mark.parametrize(
        ("method", "encoder", "way"),
        [
            ("vimadmm_j", "mlp", "integrated gradients"),
            ("vimadmm_j", "linear", "integrated gradients"),
            ("linear_admm", "mlp", "integrated gradients"),
            ("vimadmm_j", "ridge", "as the local model says itself"),
            ("vimadmm", "ridge", "Shapley values of 32 orders"),
            ("vimadmm", "mlp", "integrated gradients"),
        ],
    )
    def test_base_and_columns_add_up_to_the_share(self, method: str, encoder: str, way: str) -> None:
        model, table = trained(method, encoder).model, shoppers(rows=30, seed=5)["bank"]
        found = (
            model.contributions(table, party="bank") if method == "vimadmm" else model.part("bank").contributions(table)
        )
        assert found.way == f"{way}, counted from the mean training row" or found.way.startswith(way)
        assert found.names == ("income", "age", "since")
        distance = float((found.total - found.base).abs().max())
        assert found.gap < 1e-12 and distance > 0.1
        bent = method != "linear_admm" and encoder == "mlp"
        assert found.error < (5e-3 * distance if bent else 1e-12)

    @pytest.mark.parametrize("encoder", ["linear", "ridge"])
    def test_a_linear_model_by_hand(self, encoder: str) -> None:
        """(x - mean) w, summed over what each column was encoded to."""
        part, table = trained("vimadmm_j", encoder).model.part("telco"), shoppers(rows=20, seed=5)["telco"]
        t = {name: value.numpy() for name, value in part.tensors.items()}
        if encoder == "ridge":
            weight, constant = t["local.weight"][:-1, 0], t["local.weight"][-1, 0]
        else:
            weight = (t["head.weight.0"].T @ t["parameter.1.weight"])[0]
            constant = float(t["parameter.1.bias"] @ t["head.weight.0"][:, 0])
        frame = Federation.from_tables(shoppers(), labels="churn", id="customer")
        mean = frame.parties[1].columns[frame.split.train].double().numpy().mean(axis=0)
        x = part.plans["telco"].encode(table.drop(columns=["customer", "churn"])).double().numpy()
        pieces = (x - mean) * weight  # minutes, then one place for each city
        found = part.contributions(table)
        np.testing.assert_allclose(found.values[:, 0, 0], pieces[:, 0], atol=1e-7)
        np.testing.assert_allclose(found.values[:, 1, 0], pieces[:, 1:].sum(axis=1), atol=1e-7)
        np.testing.assert_allclose(found.base, mean @ weight + constant, atol=1e-7)

    def test_a_network_by_small_steps(self) -> None:
        """The line integral of the gradient, with differences in place of derivatives."""
        share, steps = share_of_part(trained().model.part("telco")), 4000
        part, start = trained().model.part("telco"), share.start
        assert start is not None
        x = part.read(shoppers(rows=20, seed=5)["telco"])[:1].double()
        line = start + (torch.arange(steps + 1)[:, None] / steps) * (x - start)  # (S + 1, F)
        slow = torch.zeros(x.shape[1], dtype=torch.float64)
        middle, step = (line[1:] + line[:-1]) / 2, (x - start)[0] / steps
        for column in range(x.shape[1]):
            half = torch.zeros_like(middle)
            half[:, column] = step[column] / 2
            slow[column] = (share(middle + half) - share(middle - half)).detach().sum()
        found = attribute(share, x, start).values[0, :, 0].detach()
        reach = float(slow.abs().max())
        assert float((found - torch.stack([slow[0], slow[1:].sum()])).abs().max()) < 1e-3 * reach

    def test_orders_give_shapley_values_of_a_model_that_is_not_linear(self) -> None:
        """All orders of three columns, one after the other."""
        from itertools import permutations

        run = trained("vimadmm", "ridge", 1)
        share = share_in_model(run.model, "bank")
        bent = replace(share, output=lambda x: share.output(x).tanh() + x[0, :, :1] * x[0, :, 1:2])
        x, start = run.model.part("bank").read(shoppers(rows=4, seed=5)["bank"]).double(), share.start
        assert start is not None
        places, slow = list(share.places.values()), torch.zeros(4, 3, 1, dtype=torch.float64)
        for order in permutations(range(3)):
            now = start.repeat(4, 1)
            for at in order:
                before = bent(now)
                now[:, places[at]] = x[:, places[at]]
                slow[:, at] += (bent(now) - before) / 6
        found = attribute(bent, x, start)
        assert 0 < found.error < 0.2
        assert float((found.values - slow).abs().max()) <= 4 * found.error
        torch.testing.assert_close(found.base + found.values.sum(dim=1), bent(x))

    def test_a_saved_part_explains_the_same_and_nothing_leaves(self, tmp_path: Path) -> None:
        part, table = trained().model.part("bank"), shoppers(rows=12, seed=5)["bank"]
        part.save(tmp_path)
        again = Part.load(tmp_path)
        one, other = part.contributions(table), again.contributions(table.sample(frac=1, random_state=1))
        frame = one.to_frame()
        assert list(frame.columns) == ["(base)", "income", "age", "since", "(total)"]
        pd.testing.assert_frame_equal(frame, other.to_frame().loc[frame.index])
        assert len(again.ledger) == 0 and not list(tmp_path.glob("*ledger*"))

    def test_a_row_is_told_the_same_in_whatever_company(self) -> None:
        part, table = trained().model.part("bank"), shoppers(rows=40, seed=5)["bank"]
        together = part.contributions(table).values
        for at in (0, 7, 39):
            torch.testing.assert_close(part.contributions(table[at : at + 1]).values[0], together[at])

    def test_a_table_may_come_among_others_or_as_rows_of_the_federation(self) -> None:
        model, new = trained("vimadmm").model, shoppers(rows=160)
        alone = model.contributions(new["bank"], party="bank")
        among = model.contributions(new, party="bank", reference=new)
        federation = Federation.from_tables(new, labels="churn", id="customer")
        rows = model.contributions(federation.select(range(160)), party="bank")
        torch.testing.assert_close(rows.values, alone.values, rtol=0, atol=1e-6)
        assert among.total.equal(alone.total) and among.way.endswith("160 background rows")
        other = Federation.from_tables(shoppers(rows=160, seed=1), labels="churn", id="customer")
        with pytest.raises(DataError, match="these rows have no columns of party 'bank' as its part reads them"):
            model.contributions(other.select(range(5)), party="bank")

    def test_background_rows_are_the_start(self) -> None:
        part, table = trained().model.part("bank"), shoppers(rows=12, seed=5)["bank"]
        found = part.contributions(table, background=table.iloc[:1])
        assert found.way.endswith("counted from the mean of 1 background rows")
        torch.testing.assert_close(found.base, found.total[0])
        assert float(found.values[0].abs().max()) == 0 and float(found.values[1].abs().max()) > 0

    def test_a_part_without_a_mean_row_asks_for_one(self) -> None:
        part, table = trained().model.part("bank"), shoppers(rows=12, seed=5)["bank"]
        plan = part.plans["bank"]
        old = replace(
            plan, features=tuple(replace(one, mean=None) for one in plan.features if not isinstance(one, Bins))
        )
        part = replace(part, plans={"bank": old})
        assert old.agrees(plan) and plan.agrees(old)
        with pytest.raises(ConfigError, match=r"did not keep its mean training row .* background=table"):
            part.contributions(table)
        assert part.contributions(table, background=table).gap < 1e-12

    def test_classes_have_a_number_each(self) -> None:
        federation = small(widths=(3, 2), rows=40, classes=3)
        model = fit(federation, "vimadmm_j", rounds=2, dtype="float64", progress=False).model
        found = model.part("party_0").contributions(federation.parties[0].columns[:5])
        assert found.values.shape == (5, 3, 3) and found.outputs == ("0", "1", "2")
        assert len(found.to_frame()) == 15 and found.header[:3] == ["row", "output", "(base)"]
        shift = model.part("party_0").tensors["scaling.shift"]
        at_mean = share_of_part(model.part("party_0"))(shift[None].double())[0].detach()
        torch.testing.assert_close(found.base, at_mean)


class TestByParty:
    def test_terms_of_reference_rows_are_taken_away(self) -> None:
        model = trained("vimadmm").model
        new, usual = shoppers(rows=10, seed=5), shoppers(rows=30, seed=6)
        plain, found = model.contributions(new), model.contributions(new, reference=usual)
        np.testing.assert_allclose(found.base, model.logits(usual).double().mean(dim=0), atol=1e-9)
        np.testing.assert_allclose(found.base + found.values.sum(dim=1), model.logits(new), atol=1e-9)
        means = model.contributions(usual).values.mean(dim=0)
        torch.testing.assert_close(found.values, plain.values - means)

    def test_numbers_are_on_the_scale_of_the_labels(self) -> None:
        federation = small(widths=(3, 2), rows=40, task="regression")
        model = fit(federation, "vimadmm", rounds=2, dtype="float64", progress=False).model
        assert not torch.equal(model.state["target.scale"], torch.ones_like(model.state["target.scale"]))
        found, rows = model.contributions(federation.select(range(6))), federation.select(range(6))
        torch.testing.assert_close(found.base + found.values.sum(dim=1), model.logits(rows))
        one = model.contributions(rows.columns["party_1"], party="party_1")
        mean = share_in_model(model, "party_1")(one_row(model.part("party_1").tensors["scaling.shift"])).detach()
        torch.testing.assert_close(one.base, mean[0])

    def test_what_leaves_is_what_leaves_for_a_prediction(self) -> None:
        model, new = trained("vimadmm").model, shoppers(rows=10, seed=5)
        before = len(model.ledger)
        model.predict(new)
        middle = len(model.ledger)
        model.contributions(new)
        model.contributions(new["bank"], party="bank")
        facts = [[(e.owner, e.purpose, e.rows, e.event) for e in part] for part in _parts(model.ledger, before, middle)]
        assert facts[0] == facts[1] and len(facts[0]) == 2


def one_row(row: Tensor) -> Tensor:
    return row[None].double()


def _parts(ledger: Any, before: int, middle: int) -> Iterator[list[Any]]:
    entries = list(ledger)
    yield entries[before:middle]
    yield entries[middle:]


class TestImportance:
    def test_a_party_alone_by_dealing_out_its_table(self) -> None:
        """Raw values of the table change rows, and the party's own prediction says what that changes."""
        part, table = trained().model.part("bank"), shoppers(rows=40, seed=5)["bank"]
        found = part.importance(table, draws=3, seed=7)
        before = part.predict(table)["o"]
        slow = np.zeros((3, 3))
        for draw in range(3):
            for at, column in enumerate(["income", "age", "since"]):
                order = order_of(7, "bank", at, draw, len(table)).numpy()
                other = table.assign(**{column: table[column].to_numpy()[order]})
                slow[draw, at] = float((part.predict(other)["o"] - before).abs().mean())
        np.testing.assert_allclose(found.draws, slow, atol=1e-9)
        np.testing.assert_allclose(found.mean, slow.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(found.spread, slow.std(axis=0, ddof=1), atol=1e-9)
        assert found.ranked()[0][1] == "income"

    @pytest.mark.parametrize(("metric", "weights"), [("auc", None), ("log_loss", None), ("log_loss", "visits")])
    def test_the_model_by_dealing_out_raw_tables(self, metric: str, weights: str | None) -> None:
        model, new = trained("vimadmm").model, shoppers(rows=60, seed=5)
        if weights is not None:  # a column of one table that training did not have, and no word about it
            new = {**new, "bank": new["bank"].assign(visits=np.linspace(0.1, 5, 60))}
        before = len(model.ledger)
        found = model.importance(new, "churn", metric, weights=weights, draws=2, seed=7)
        released = list(model.ledger)[before:]
        assert len(released) == 2 + 2 * 5 and {entry.purpose for entry in released} == {Purpose.EXPLAIN}
        assert len({(entry.owner, entry.number) for entry in released}) == len(released)
        whole = model.score(new, "churn", [metric], weights=weights)[metric]
        sign = 1 if metric == "auc" else -1
        assert found.score == pytest.approx(whole, abs=1e-12)
        for at, (party, column) in enumerate(zip(found.parties, found.columns, strict=True)):
            place = [name for whose, name in zip(found.parties, found.columns, strict=True) if whose == party].index(
                column
            )
            slow = []
            for draw in range(2):
                order = order_of(7, party, place, draw, 60).numpy()
                other = new[party].assign(**{column: new[party][column].to_numpy()[order]})
                score = model.score({**new, party: other}, "churn", [metric], weights=weights)[metric]
                slow.append(sign * (whole - score))
            np.testing.assert_allclose(found.draws[:, at], slow, atol=1e-9)

    @pytest.mark.parametrize(
        ("rows", "draws", "told"), [(1, 5, "at least two rows"), (9, 0, "draws = 0"), (9, True, "draws")]
    )
    def test_what_cannot_be_measured_is_refused(self, rows: int, draws: int, told: str) -> None:
        with pytest.raises((ConfigError, DataError), match=told):
            trained().model.part("bank").importance(shoppers(rows=40, seed=5)["bank"][:rows], draws=draws)

    def test_rows_of_one_class_have_no_auc(self) -> None:
        new = shoppers(rows=40, seed=5)
        kept = new["telco"]["churn"] == "no"
        with pytest.raises(DataError, match="AUC is undefined on these"):
            trained("vimadmm").model.importance({p: t[kept] for p, t in new.items()}, "churn")


class TestRefused:
    def test_a_server_model_that_mixes(self) -> None:
        model, new = trained("split_learning", layers=2).model, shoppers(rows=10, seed=5)
        for asked in ({"rows": new}, {"rows": new["bank"], "party": "bank"}):
            with pytest.raises(ConfigError, match="the score of this split_learning model is no sum over the parties"):
                model.contributions(**asked)

    def test_a_secure_sum_hides_the_parties_but_not_their_own_columns(self) -> None:
        federation = small(widths=(3, 2, 2), rows=40)
        privacy = PrivacySettings(secure_sum={"use": True})
        model = fit(federation, "vimadmm_j", rounds=1, privacy=privacy, progress=False).model
        with pytest.raises(ConfigError, match="secure sum: the coordinator may only learn the total"):
            model.contributions(federation.select(range(5)))
        with pytest.raises(ConfigError, match="secure sum"):
            model.importance(federation.select(range(5)), federation.labels[:5])
        assert model.part("party_0").contributions(federation.parties[0].columns[:5]).gap < 1e-12

    def test_importance_of_a_run_with_noise_needs_a_word(self) -> None:
        federation = small(widths=(3, 2), rows=40)
        privacy = {"mechanism": "gaussian", "clip": 1.0, "sigma": 20.0}
        model = fit(federation, "vimadmm", rounds=1, privacy=privacy, progress=False).model
        rows, labels = federation.select(federation.split.test), federation.labels[federation.split.test]
        with pytest.raises(ConfigError, match=r"promises an epsilon, .* uncovered=True"):
            model.importance(rows, labels)
        assert model.importance(rows, labels, draws=1, uncovered=True).rows == len(labels)

    @pytest.mark.parametrize("method", ["c_vfl", "vfl_pbm", "cafe"])
    def test_uploads_that_cannot_be_traced(self, method: str) -> None:
        federation = small(widths=(3, 3), rows=40)
        model = fit(federation, method, rounds=1, progress=False).model
        with pytest.raises(ConfigError, match=f"uploads of {method} cannot be traced back to columns"):
            model.part("party_0").contributions(federation.parties[0].columns[:5])

    def test_tokens_have_no_mean_row(self) -> None:
        rng = np.random.default_rng(0)
        columns = {"words": rng.integers(0, 5, (60, 3)), "bank": rng.normal(size=(60, 2))}
        own = {"words": nn.Sequential(nn.Embedding(5, 2), nn.Flatten())}
        federation = Federation.from_arrays(columns, (columns["bank"][:, 0] > 0).astype(int))
        model = fit(federation, "vimadmm_j", rounds=1, encoders=own, progress=False).model
        with pytest.raises(ConfigError, match="the columns of party 'words' are tokens"):
            model.part("words").contributions(columns["words"][:5])
        assert model.part("bank").contributions(columns["bank"][:5]).gap < 1e-9
        found = model.importance(federation.select(range(60)), federation.labels.flatten(), draws=1)
        assert found.ranked()[0][:2] == ("bank", "0")

    def test_columns_in_one_place(self) -> None:
        federation = small(widths=(3, 3), rows=40)
        model = fit(federation, "centralized", rounds=1, progress=False).model
        with pytest.raises(ConfigError, match="centralized has no parties to tell apart"):
            model.contributions(federation.pooled().select(range(5)))
        with pytest.raises(ConfigError, match="all columns in one place"):
            model.part("everyone").contributions(federation.pooled().parties[0].columns[:5])

    def test_an_id_beside_one_party(self) -> None:
        with pytest.raises(ConfigError, match="id matches the tables of several parties"):
            trained().model.contributions(shoppers()["bank"], party="bank", id="customer")


def test_a_regressor_of_the_users_own_is_tried_from_outside() -> None:
    federation = small(widths=(3, 2), rows=40)
    own = {"party_0": Stumps(), "party_1": Stumps()}
    model = fit(federation, "vimadmm_j", rounds=2, encoders=own, dtype="float64", progress=False).model
    found = model.part("party_0").contributions(federation.parties[0].columns[:5])
    assert found.way.startswith("Shapley values of 32 orders") and found.gap < 1e-12
