"""The chart of the README, from a result file: what each method sends until it is good enough.

Drawn by hand as SVG, so that the same results give the same bytes everywhere and a test can compare them.
"""

from __future__ import annotations

from html import escape

from colonnade.bench.outcome import Outcome

NAMES = {
    "vimadmm_j": "VIMADMM-J",
    "vimadmm": "VIMADMM",
    "fdml": "FDML",
    "split_learning": "Split Learning",
    "fedbcd": "FedBCD",
    "vafl": "VAFL",
    "linear_admm": "Linear-ADMM",
}
OURS = ("vimadmm", "vimadmm_j")  # the methods of the paper
WIDTH, TOP, STEP, BAR, LEFT, ROOM = 760, 64, 34, 20, 130, 370  # pixels; ROOM: of the longest bar
STYLE = "font: 14px system-ui, sans-serif; fill: #1c1f24"


def draw(outcome: Outcome) -> str:
    """Bars of `mb_to_96`, shortest first, each with its test accuracy; methods that never got there are named."""
    results = outcome.results
    reached = {name: results[f"mb_to_96.{name}"] for name in NAMES if f"mb_to_96.{name}" in results}
    order = sorted(reached, key=lambda name: reached[name])
    never = [name for name in NAMES if f"test_accuracy.{name}" in results and name not in reached]
    height = TOP + STEP * len(order) + (30 if never else 8)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" style="{STYLE}">',
        "<title>Megabytes sent until 96 % validation accuracy, by method</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="24" font-weight="600">Megabytes sent until the model has 96 % on validation rows: fewer is '
        "better</text>",
        '<text x="12" y="46" fill="#5a6270">MNIST in 14 strips, one per party; messages of all parties in both '
        "directions; mean of 3 seeds</text>",
    ]
    longest = max(reached.values())
    for place, name in enumerate(order):
        length = ROOM * reached[name] / longest
        lines += _bar(name, TOP + STEP * place, length, reached[name], results[f"test_accuracy.{name}"])
    if never:
        told = ", ".join(f"{NAMES[name]} ({results[f'test_accuracy.{name}']:.1f} %)" for name in never)
        lines.append(f'<text x="12" y="{height - 10}" fill="#5a6270">Never reached 96 %: {escape(told)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _bar(name: str, top: int, length: float, megabytes: float, accuracy: float) -> list[str]:
    colour = "#1a4fc4" if name in OURS else "#9aa4b2"
    told = f"{megabytes:,.0f} MB, test accuracy {accuracy:.1f} %"
    middle = top + BAR - 5
    return [
        f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{escape(NAMES[name])}</text>',
        f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>',
        f'<text x="{LEFT + length + 8:.1f}" y="{middle}">{told}</text>',
    ]
