"""Finds cases for the alignment benchmark in the histories of other repositories than those of the public cases.

    python -m bench.alignment_cases --repos FOLDER --out cases.jsonl.gz
    python -m bench.alignment --cases cases.jsonl.gz --repos FOLDER --unseen

A statement is followed from each version of a script to the version before by a diff of statements that shares nothing
with the one of relive but the parser; it is lost where that diff is ambiguous.
The cases name repositories, blobs and lines; nothing of the code is kept.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from bench.alignment import DISTANCES
from relive.transplant.syntax.statement_tree import Node, Tree, parse

SCRIPTS = {  # group → repository, scripts
    "open_clip": ("mlfoundations+open_clip", "src/training/main.py src/training/train.py"),
    "cleanrl": (
        "vwxyzjn+cleanrl",
        "cleanrl/dqn.py cleanrl/ppo.py cleanrl/ppo_continuous_action.py cleanrl/ppo2_continuous_action.py",
    ),
    "frcnn": ("jwyang+faster-rcnn.pytorch", "tools/trainval_net.py trainval_net.py"),
    "a2c": ("ikostrikov+pytorch-a2c-ppo-acktr-gail", "main.py"),
    "tts": ("mozilla+TTS", "train.py"),
    "deepspeech": ("SeanNaren+deepspeech.pytorch", "train.py"),
    "lucidgan": ("lucidrains+stylegan2-pytorch", "stylegan2_pytorch/stylegan2_pytorch.py"),
    "tvision": (
        "pytorch+vision",
        "references/classification/train.py references/detection/train.py references/segmentation/train.py "
        "references/video_classification/train.py",
    ),
    "dreambooth": ("ShivamShrirao+diffusers", "examples/dreambooth/train_dreambooth.py"),
    "recipes": ("meta-llama+llama-recipes", "src/llama_recipes/utils/train_utils.py"),
    "mingpt": ("karpathy+minGPT", "mingpt/trainer.py"),
    "litgpt": ("Lightning-AI+lit-gpt", "finetune_adapter.py pretrain/openwebtext_trainer.py"),
    "opennmt": ("OpenNMT+OpenNMT-py", "train.py onmt/trainer.py onmt/train_single.py"),
    "opensora": ("hpcaitech+Open-Sora", "scripts/train.py scripts/train-vae.py"),
    "titan": ("pytorch+torchtitan", "train.py torchtitan/train.py"),
    "rwkv": ("BlinkDL+RWKV-LM", "RWKV-v4neo/train.py RWKV-v4neo/src/trainer.py"),
    "bertvits": ("fishaudio+Bert-VITS2", "train_ms.py"),
    "sovits": ("svc-develop-team+so-vits-svc", "train.py"),
    "tianshou": ("thu-ml+tianshou", "tianshou/trainer/onpolicy.py tianshou/trainer/offpolicy.py"),
    "fcn": ("wkentaro+pytorch-fcn", "torchfcn/trainer.py examples/voc/train_fcn32s.py"),
    "unet": ("milesial+Pytorch-UNet", "train.py"),
    "yolov3": ("eriklindernoren+PyTorch-YOLOv3", "train.py"),
    "espnet": ("espnet+espnet", "espnet2/train/trainer.py"),
    "transformers": ("huggingface+transformers", "examples/run_squad.py"),
    "ddpm": (
        "lucidrains+denoising-diffusion-pytorch",
        "denoising_diffusion_pytorch/denoising_diffusion_pytorch.py",
    ),
    "neox": ("EleutherAI+gpt-neox", "megatron/training.py"),
    "sb3": (
        "DLR-RM+stable-baselines3",
        "stable_baselines3/common/on_policy_algorithm.py stable_baselines3/ppo/ppo.py",
    ),
    "mmdet": ("open-mmlab+mmdetection", "tools/train.py"),
    "reid": ("KaiyangZhou+deep-person-reid", "torchreid/engine/engine.py train_imgreid_xent.py"),
    "text_to_image": ("huggingface+diffusers", "examples/text_to_image/train_text_to_image.py"),
}
LOG = re.compile(
    r"print\(|logger\.|logging\.|log\.|wandb\.|writer\.add_|tb_writer\.|tqdm\.write|pbar\.set|progress_bar\.set"
    r"|accelerator\.(log|print)|self\.log|metric_logger\.|vis\.|viz\.|tb_logger\.|fabric\.print|.*\.add_scalar"
)
SAME = 0.7  # the share of equal letters of a statement that was edited
VERSIONS, CASES = 25, 14  # at most, of each script and distance: new versions, and cases of each sample


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.alignment_cases")
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with gzip.open(options.out, "wt", encoding="utf-8") as out:
        for group, (repo, paths) in SCRIPTS.items():
            for path in paths.split():
                history = History(options.repos / repo, path)
                dice = random.Random(f"{repo} {path}")  # the cases of a script don't depend on what else is cloned
                cases = list(find_cases(history, dice)) if len(history.blobs) > DISTANCES[1] else []
                out.writelines(
                    json.dumps({"group": group, "repo": repo, "path": path, **case}) + "\n" for case in cases
                )
                print(f"{repo} {path}: {len(history.blobs)} versions, {len(cases)} cases", file=sys.stderr)


class History:
    """The versions of one script, the oldest first, and which statements correspond in neighbouring versions."""

    def __init__(self, folder: Path, path: str) -> None:
        places = [place for place in (folder / ".git", folder / "repo", folder) if (place / "objects").is_dir()]
        self.folder = places[0] if places else folder
        self.blobs: list[str] = []
        for commit in reversed(self._git("log", "--topo-order", "--pretty=%H", "--", path).decode().split()):
            blob = self._git("rev-parse", f"{commit}:{path}").decode().strip()
            if re.fullmatch(r"[0-9a-f]{40}", blob) and blob not in self.blobs[-1:]:
                self.blobs.append(blob)
        self.texts = [self._git("cat-file", "blob", blob).decode("utf-8", "replace") for blob in self.blobs]
        self.valid = [is_valid(text) and "\ufffd" not in text for text in self.texts]
        self.trees = [parse(text) for text in self.texts]
        self.links = [{}, *(link(*pair) for pair in zip(self.trees, self.trees[1:], strict=False))]

    def _git(self, *arguments: str) -> bytes:
        return subprocess.run(["git", f"--git-dir={self.folder}", *arguments], capture_output=True, check=False).stdout

    def partner(self, new: int, distance: int, node: Node) -> Node | None:
        """Returns the statement some versions before that a statement comes from."""
        order: int | None = node.order
        for version in range(new, new - distance, -1):
            order = self.links[version].get(order) if order is not None else None
        return self.trees[new - distance].nodes[order] if order is not None else None


def is_valid(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def link(old: Tree, new: Tree) -> dict[int, int]:
    """Returns for statements of the new version those of the old one: equal ones, and similar ones without a rival."""
    ours, theirs = [node.key for node in old.nodes], [node.key for node in new.nodes]
    pairs: dict[int, int] = {}
    for tag, i, i_end, j, j_end in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs |= {j + step: i + step for step in range(i_end - i)}
        elif tag == "replace" and (i_end - i) * (j_end - j) < 400:
            pairs |= _link_edited(old, new, range(i, i_end), range(j, j_end))
    return pairs


def _link_edited(old: Tree, new: Tree, olds: range, news: range) -> dict[int, int]:
    similar = []
    for second in news:
        for first in olds:
            if old.nodes[first].kind == new.nodes[second].kind:
                matcher = SequenceMatcher(None, old.nodes[first].key, new.nodes[second].key, autojunk=False)
                if matcher.quick_ratio() >= SAME and matcher.ratio() >= SAME:
                    similar.append((matcher.ratio(), second, first))
    found: dict[int, int] = {}
    for share, second, first in sorted(similar, reverse=True):
        is_taken = second in found or first in found.values()
        is_crossing = any((second < other) != (first < partner) for other, partner in found.items())
        rivals = [each for each, other, _ in similar if other == second and each > share - 0.1]
        if not is_taken and not is_crossing and len(rivals) == 1:
            found[second] = first
    return found


def find_cases(history: History, dice: random.Random) -> Iterator[dict[str, Any]]:
    """Yields log statements, and statements that were edited, at each distance."""
    for distance in DISTANCES:
        news = [
            new for new in range(distance, len(history.blobs)) if history.valid[new] and history.valid[new - distance]
        ]
        dice.shuffle(news)
        cases = [case for new in news[:VERSIONS] for case in _cases_of(history, new, distance)]
        logs = [case for case in cases if case["log"]]
        others = [case for case in cases if case["edited"] or not (case["log"] or case["kind"] == "exact")]
        for sample, chosen in (("natlog", logs), ("over", others)):
            dice.shuffle(chosen)
            chosen = [case for case in chosen if sample == "natlog" or case["edited"]]
            seen: set[tuple[str, int]] = set()
            for case in chosen:
                place = (case["old_blob"], case["old_lines"][0])
                if place in seen or not _can_be_taken_out(history, case) or len(seen) == CASES:
                    continue
                seen.add(place)
                kept = {key: value for key, value in case.items() if key not in ("log", "edited")} | {"sample": sample}
                yield {**kept, "id": hashlib.sha1(json.dumps(kept).encode()).hexdigest()[:12]}


def _cases_of(history: History, new: int, distance: int) -> Iterator[dict[str, Any]]:
    tree, old_tree = history.trees[new], history.trees[new - distance]
    for node in tree.nodes:
        if node.kind or len(node.words) < 2 or "import" in node.words:
            continue
        old = history.partner(new, distance, node)
        if old is None or old.kind or not (_is_alone(tree, node) and _is_alone(old_tree, old)):
            continue
        if old.parent is None or len(old.parent.body or ()) < 2:
            continue  # its block would be empty without it
        edited = old.key != node.key
        repeated = not edited and sum(other.key == node.key for other in tree.nodes) > 1
        yield {
            "dist": distance, "old_blob": history.blobs[new - distance], "new_blob": history.blobs[new],
            "new_lines": [node.line, node.last_line], "old_lines": [old.line, old.last_line],
            "kind": "edited" if edited else "repeat" if repeated else "exact",
            "nl_new": len(tree.lines), "log": bool(LOG.match(node.key)), "edited": edited,
        }  # fmt: skip


def _is_alone(tree: Tree, node: Node) -> bool:
    """Whether no other statement is on the lines of a simple statement."""
    near = tree.nodes[max(0, node.order - 2) : node.order + 3]
    shares = any(each is not node and each.body is None and each.line <= node.last_line and each.last_line >= node.line
                 for each in near)  # fmt: skip
    parent = node.parent
    return not shares and parent is not None and not parent.inline


def _can_be_taken_out(history: History, case: dict[str, Any]) -> bool:
    lines = history.texts[history.blobs.index(case["old_blob"])].splitlines(keepends=True)
    first, last = case["old_lines"]
    return is_valid("".join(lines[: first - 1] + lines[last:]))


if __name__ == "__main__":
    main()
