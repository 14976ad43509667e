"""Write all pages that show figures of result files."""

from __future__ import annotations

from pathlib import Path

from colonnade.bench.catalogue import folder
from colonnade.bench.chart import draw
from colonnade.bench.outcome import read
from colonnade.bench.page import PAGE, RESULTS, fill, refresh, shown
from colonnade.bench.paper_page import page
from colonnade.errors import ConfigError

CHART, CHARTED = "docs/methods-mnist.svg", "mnist-zoo.json"
DOCUMENT, INTERACTIONS = "docs/paper.md", "docs/interactions.md"


def write_pages() -> list[Path]:
    """Write the figures into `benchmarks/README.md`, the README beside that folder, its chart and the pages of docs."""
    place = folder()
    results, root = place / RESULTS, place.parent
    texts: dict[Path, str] = {}
    for path, make in ((place / PAGE, fill), (root / PAGE, refresh)):
        if not path.is_file():
            raise ConfigError(f"there is no {path} to write figures into; run this in a checkout of the sources")
        texts[path] = make(path.read_text(encoding="utf-8"), results)
    if (charted := results / CHARTED).exists():
        texts[root / CHART] = draw(read(charted))
    if (root / DOCUMENT).parent.is_dir():
        texts[root / DOCUMENT] = page(results)
    if (document := root / INTERACTIONS).is_file():
        texts[document] = shown(document.read_text(encoding="utf-8"), results, f"../{place.name}/{RESULTS}")
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        path.write_text(texts[path], encoding="utf-8")
    return changed
