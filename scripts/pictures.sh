#!/usr/bin/env bash
# Retakes the screenshots of docs/dashboard-pages.md: `scripts/pictures.sh PROGRAM`. Needs pngquant, and what
# `scripts/bootstrap.sh browser` installs.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:?the path of a kilonova program}
command -v pngquant >/dev/null || { echo "pictures: pngquant is missing; install the package pngquant" >&2; exit 1; }
taken=$(mktemp -d)
trap 'rm -rf "$taken"' EXIT
python3 scripts/dashboard_browser.py --kilonova "$program" --pictures "$taken"
for old in docs/images/pages/*.png; do
    new=$taken/$(basename "$old")
    [ -s "$new" ] || { echo "pictures: scripts/dashboard_browser.py takes no $(basename "$old"); remove it from docs/dashboard-pages.md" >&2; exit 1; }
    # 99: the quality would be too low, so the picture stays as it was taken.
    pngquant --quality 40-80 --speed 1 --strip --force --output "$old" "$new" || { [ $? = 99 ] && cp "$new" "$old"; }
done
