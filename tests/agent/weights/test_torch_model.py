"""A PyTorch model gives the same answers with weights from an origin, a replica, or the parts of two ranks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from external_programs import needed
from weights_world import fetch, serving

from fleetctl.agent.weights.index import write_index

ENGINE = """\
import json, os, sys, torch
from safetensors.torch import load_file, save_file
CUT = {"0.weight": 0, "0.bias": 0, "2.weight": 1}
torch.manual_seed(len(sys.argv))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
if sys.argv[1:]:
    save_file(model.state_dict(), sys.argv[1])
else:
    ranks = [load_file(f"{one}/model.safetensors") for one in os.environ["FLEETCTL_MODEL_DIR"].split(os.pathsep)]
    model.load_state_dict({name: torch.cat([rank[name] for rank in ranks], CUT[name])
                           if len(ranks) > 1 and name in CUT else ranks[0][name] for name in ranks[0]})
with torch.no_grad():
    found = model(torch.arange(40.).reshape(5, 8) / 10).tolist()
print(json.dumps([[value.hex() for value in row] for row in found]))
"""
SHARD = {"shard": {"rules": [{"match": r"^0\.", "dim": 0}, {"match": r"2\.weight", "dim": 1}], "of": "2"}}


def answers(python: str, *arguments: str, folders: tuple[str, ...] = ()) -> Any:
    env = {"FLEETCTL_MODEL_DIR": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"}
    return json.loads(subprocess.run([python, "-c", ENGINE, *arguments], check=True, text=True, timeout=300, env=env,
                                     stdout=subprocess.PIPE).stdout)


@pytest.mark.slow
def test_a_pytorch_model_answers_the_same_whatever_the_source_of_its_weights(tmp_path: Path) -> None:
    python = needed("FLEETCTL_TEST_TORCH_PYTHON", "python-with-torch",
                    "install `torch safetensors` in an environment of its own", in_ci=False)
    folder = tmp_path / "model"
    folder.mkdir()
    as_made = answers(python, str(folder / "model.safetensors"))
    artifact = write_index(str(folder))
    first = fetch(tmp_path / "a", artifact, origins=[{"path": str(folder)}])
    with serving(tmp_path / "a", first) as (_, source):
        second = fetch(tmp_path / "b", artifact, source)
        ranks = [fetch(tmp_path / f"rank-{rank}", artifact, source, view=SHARD, rank=rank) for rank in range(2)]
    assert {one.source for one in (second, *ranks)} == {"peer"}
    assert all(rank.held.size < first.held.size for rank in ranks)
    for folders in ((first.entry.folder,), (second.entry.folder,), tuple(rank.entry.folder for rank in ranks)):
        assert answers(python, folders=folders) == as_made
