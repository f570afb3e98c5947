"""The demo's folder: private, with a short path, and written atomically."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.demo.home import MAX_HOME_LENGTH, ClusterState, DemoHome
from fleetctl.errors import FleetctlError

STATE = ClusterState("abc", 12, "http://127.0.0.1:8265", ("head",), ready=True)


@pytest.fixture
def home() -> Iterator[DemoHome]:
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as folder:
        yield DemoHome(Path(folder) / "h")


def test_the_environment_names_the_folder() -> None:
    assert DemoHome.from_environment({"FLEETCTL_DEMO_HOME": "/tmp/mine"}).path == Path("/tmp/mine")


def test_the_default_folder_is_one_per_user_and_short_enough() -> None:
    assert DemoHome.from_environment({}).path.name.startswith("fleetctl-demo-")
    assert len(str(Path("/tmp") / DemoHome.from_environment({}).path.name)) <= MAX_HOME_LENGTH


def test_a_path_too_long_for_ray_is_refused_with_a_hint() -> None:
    with pytest.raises(FleetctlError) as caught:
        DemoHome(Path("/tmp") / ("x" * 60)).prepare(sys.executable)
    assert "FLEETCTL_DEMO_HOME" in str(caught.value.hint)


def test_token_and_folder_are_closed_to_others(home: DemoHome) -> None:
    home.prepare(sys.executable)
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert home.token_file.stat().st_mode & 0o777 == 0o600


def test_each_cluster_has_a_token_of_its_own(home: DemoHome) -> None:
    home.prepare(sys.executable)
    first = home.token_file.read_text()
    home.prepare(sys.executable)
    assert home.token_file.read_text() != first


def test_a_folder_open_to_others_is_refused(home: DemoHome) -> None:
    home.path.mkdir(mode=0o755)
    home.path.chmod(0o755)
    with pytest.raises(FleetctlError, match="closed to others"), home.locked():
        pass


def test_a_link_in_its_place_is_refused(home: DemoHome, tmp_path: Path) -> None:
    home.path.symlink_to(tmp_path)
    with pytest.raises(FleetctlError), home.locked():
        pass


def test_the_launcher_starts_the_engine_from_any_folder(home: DemoHome) -> None:
    home.prepare(sys.executable)
    done = subprocess.run(
        ["stub-engine", "--help"], env={"PATH": f"{home.launchers}:/usr/bin:/bin"}, cwd="/",
        capture_output=True, text=True, check=True, timeout=300,
    )
    assert "--startup-delay" in done.stdout


def test_the_state_comes_back_as_it_was_written(home: DemoHome) -> None:
    home.prepare(sys.executable)
    home.write(STATE)
    assert home.read() == STATE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mark": "a"}'])
def test_a_malformed_state_is_no_cluster(home: DemoHome, text: str) -> None:
    home.prepare(sys.executable)
    home.state_file.write_text(text)
    assert home.read() is None


def test_clearing_leaves_no_state_token_or_session(home: DemoHome) -> None:
    home.prepare(sys.executable)
    home.write(STATE)
    (home.sessions / "session_x").mkdir(parents=True)
    home.clear()
    assert list(home.path.iterdir()) == []
