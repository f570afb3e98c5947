"""`python -m fleetctl` is `fleetctl`."""

from __future__ import annotations

from fleetctl.cli.entry import main

if __name__ == "__main__":
    main()
