#!/usr/bin/env bash
# A real model in a demo cluster of its own, from up to down: `make example`. No network is needed.
set -euo pipefail
cd "$(dirname "$0")/../.."
FLEETCTL_DEMO_HOME=$(mktemp -d /tmp/fleetctl-example-XXXXXX)
export FLEETCTL_DEMO_HOME PATH="$PWD/fleets/real-model:$PATH" # the nodes find the engine there
trap 'fleetctl demo down; rm -rf "$FLEETCTL_DEMO_HOME"' EXIT

show() { printf '\n$ %s\n' "$*"; "$@"; }

eval "$(fleetctl demo up)"
show fleetctl apply -f fleets/real-model --yes
show fleetctl status -f fleets/real-model
show ask.py fleets/real-model/*.* README.md
echo
