"""`python -m fleetctl` is `fleetctl`: where the process begins. Loading the rest takes tenths of a second."""

from __future__ import annotations

from fleetctl.cli import signals

signals.end_at_once()

from fleetctl.cli.entry import main  # noqa: E402  what can be interrupted comes after it may be

if __name__ == "__main__":
    main()
