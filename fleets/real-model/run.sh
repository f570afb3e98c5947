#!/usr/bin/env bash
# A real model in a demo cluster of its own, from start to end: `make example`. No network is needed.
# `run.sh here` uses the demo cluster of this shell, whose nodes must have the engine on their PATH.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$PWD/fleets/real-model:$PATH" # inherited by the nodes of the cluster

show() { printf '\n$ %s\n' "$*"; "$@"; }

if [ "${1:-}" != here ]; then
  FLEETCTL_DEMO_HOME=$(mktemp -d /tmp/fleetctl-example-XXXXXX)
  export FLEETCTL_DEMO_HOME
  trap 'eval "$(fleetctl demo down)"; rm -rf "$FLEETCTL_DEMO_HOME"' EXIT
  eval "$(fleetctl demo up)"
fi
show fleetctl apply -f fleets/real-model --yes
show fleetctl status -f fleets/real-model
show ask.py fleets/real-model/*.* README.md
echo
