#!/usr/bin/env bash
# Take the pictures of README.md that age with the program: docs/report.png of the demo's report, and the live pages.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
(cd "$place" && "$here/.venv/bin/python" -m colonnade demo > /dev/null)
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,1064 \
  --user-data-dir="$place/profile" --screenshot="$here/docs/report.png" "file://$place/demo-run/report.html" 2> /dev/null
cd "$here" && COLONNADE_PICTURES="$here/docs/images" .venv/bin/python -m pytest -q tests/watching/test_in_a_browser.py
.venv/bin/python - docs/report.png docs/images/*.png <<'PY' # a few dozen colours are enough, and a third of the bytes
import sys

from PIL import Image

for name in sys.argv[1:]:
    Image.open(name).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(name, optimize=True)
PY
