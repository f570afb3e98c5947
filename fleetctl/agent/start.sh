#!/bin/sh
# Run the agent with the interpreter of Ray's workers, which may not be the `python` on PATH: the raylet, an ancestor of
# this process, has the command that starts a worker in its own command line.
pid=$PPID
while [ "${pid:-0}" -gt 1 ]; do
  interpreter=$(tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | sed -n 's/^--python_worker_command=\([^ ]*\) .*/\1/p' | head -n 1)
  if [ -n "$interpreter" ] && [ -x "$interpreter" ]; then
    exec "$interpreter" -u -m fleetctl_agent "$@"
  fi
  pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
done
for interpreter in python3 python; do
  if "$interpreter" -c 'import ray' 2>/dev/null; then
    exec "$interpreter" -u -m fleetctl_agent "$@"
  fi
done
echo '{"seq":0,"time":"","type":"runSummary","level":"error","exitCode":1,"outcomes":[],"message":"no Python interpreter with ray was found on the head node"}'
exit 1
