"""What stands beside every accuracy under noise: parties that never upload, and uploads without their signal.

A figure and its epsilon say nothing about uploads if the labels alone give as much (docs/privacy.md). So the page that
shows such figures shows both controls from the same result file, or says that they were not measured.
"""

from __future__ import annotations

import re

from colonnade.bench.outcome import Outcome

LOCAL, NO_SIGNAL = "local_only", "vimadmm_no_signal"
BUDGET = re.compile(r"^accuracy_eps(\d+(?:\.\d+)?)\.([a-z]\w*)$")
NOISED = re.compile(r"^(test_accuracy|accuracy|auc)\w*[._](eps\d|client_|label_)")
MISSING = "(not measured)"


def controls(outcome: Outcome) -> str:
    """One sentence for a page; empty: nothing was noised."""
    results = outcome.results
    found = {key: match for key in results if (match := BUDGET.match(key))}
    budgets = dict.fromkeys(match[1] for match in found.values())
    if budgets:
        keys = {b: [f"accuracy_eps{b}.{name}" for name in (LOCAL, NO_SIGNAL)] for b in budgets}
        told = [f"`eps{b}`: {_both(outcome, *both)}" for b, both in keys.items()]
        return f"What is not due to uploads, beside these figures: {'; '.join(told)}."
    noised = any(NOISED.match(key) for key in results)
    if noised or any(key.startswith("epsilon_spent") and results[key] for key in results):
        told_of = _both(outcome, f"test_accuracy.{LOCAL}", f"test_accuracy.{NO_SIGNAL}")
        return f"What is not due to uploads, beside the figures under noise: {told_of}."
    return ""


def _both(outcome: Outcome, local: str, removed: str) -> str:
    return f"`{LOCAL}` has {_figure(outcome, local)}, uploads without their signal {_figure(outcome, removed)}"


def _figure(outcome: Outcome, key: str) -> str:
    value = outcome.results.get(key)
    return MISSING if value is None else f"{value:.2f}"
