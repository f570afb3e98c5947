"""What other programs and other files may rely on is written down once, and exactly."""

from __future__ import annotations

import importlib
import pkgutil
import re

import fleetctl.cli
from fleetctl import errors
from fleetctl.cli import ci
from fleetctl.cli.app import COMMANDS

EXIT_CODES = {
    "FleetctlError": 1, "UsageError": 64, "FleetFileError": 1, "RevisionError": 1, "DocumentError": 1,
    "InventoryError": 1, "ClusterUnreachable": 1, "ClusterRefused": 1, "PathNotServed": 1,
    "ApplyError": 1, "ForgeError": 1,
    "PolicyRefused": 4, "LockHeld": 5, "PlanStale": 6, "PlanUsed": 6, "WaitTimeout": 7,
}


def test_every_error_has_its_exit_code() -> None:
    classes = {name: value for name, value in vars(errors).items()
               if isinstance(value, type) and issubclass(value, Exception)}
    assert {name: value.exit_code for name, value in classes.items()} == EXIT_CODES


def test_the_tree_at_the_top_of_errors_is_the_tree() -> None:
    drawn = dict(re.findall(r"(\w+)\s{2,}(\d+)", errors.__doc__ or ""))
    assert {name: int(code) for name, code in drawn.items()} == EXIT_CODES


def test_every_command_module_is_listed() -> None:
    modules = {module.name for module in pkgutil.walk_packages(fleetctl.cli.__path__, "fleetctl.cli.")}
    commands = {name for name in modules if hasattr(importlib.import_module(name), "app")}
    assert commands == {f"fleetctl.cli.{one.module}" for one in (*COMMANDS.values(), *ci.COMMANDS.values())}
