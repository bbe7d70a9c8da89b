#!/usr/bin/env bash
# Writes shell completions of both programs into target/completion, for the Debian packages.
#
#   scripts/completion.sh release        (the folder below target/ with the programs)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p target/completion
for program in kilonova kilonova-agent; do
    for shell in bash zsh fish; do
        "target/$1/$program" completion "$shell" >"target/completion/$program.$shell"
    done
done
