#!/usr/bin/env bash
# Record docs/demo.svg: the demo as somebody sees it who types the command. Needs `pip install termtosvg`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat > "$place/typed" <<TYPED
#!/bin/bash
cd "$place"
printf '\$ '; for c in c o l o n n a d e ' ' d e m o; do printf '%s' "\$c"; sleep 0.08; done; echo; sleep 0.3
COLUMNS=112 "$here/.venv/bin/colonnade" demo
sleep 1
TYPED
chmod +x "$place/typed"
script -qec "termtosvg '$here/docs/demo.svg' -c '$place/typed' -g 116x34 -M 900 -m 60 -D 6000 -t window_frame" /dev/null
