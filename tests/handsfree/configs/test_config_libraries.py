"""What a config library parsed is args of the run, with the real libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index
from tests.conftest import Script

LOOP = """
weight = 5.0
for epoch in range(3):
    for step in range(3):
        weight -= lr * weight
    print(f"loss: {weight}")
"""
HYDRA = """
import os

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    weight = 5.0
    for epoch in range(cfg.epochs):
        for step in range(3):
            weight -= cfg.optimizer.lr * weight
        print(f"loss: {weight}")
        # probe
    with open("result.txt", "w") as file:
        file.write(os.getcwd())


if __name__ == "__main__":
    main()
"""
HYDRA_CONFIG = """
    defaults:
      - _self_
      - optimizer: sgd
    epochs: 3
    name: run_${epochs}
    wd: ${oc.env:NOT_SET_ANYWHERE}
    missing: ???
    blocks:
      - {kind: conv, width: 8}
    cloud:
      api_token: hush-hush-4711
"""


def only_run(script: Script) -> Any:
    index = Index(Home(script.home))
    (entry,) = index.runs()
    index.close()
    return entry.record


def args_of(script: Script) -> dict[str, tuple[Any, str]]:
    return {name: (arg["value"], arg["origin"]) for name, arg in only_run(script).config["args"].items()}


def write_hydra_project(script: Script) -> None:
    script.write(HYDRA)
    script.write(HYDRA_CONFIG, "conf/config.yaml")
    script.write("lr: 0.1\nmomentum: 0.9\n", "conf/optimizer/sgd.yaml")
    script.write("lr: 0.2\nbetas: [0.9, 0.99]\n", "conf/optimizer/adam.yaml")


@pytest.fixture
def hydra() -> None:
    pytest.importorskip("hydra")


# --- Hydra ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hydra")
def test_the_config_of_hydra_is_args_with_its_overrides(script: Script):
    write_hydra_project(script)
    done = script.relive("run", "train.py", "optimizer=adam", "optimizer.lr=0.05", "+note=x")
    args = args_of(script)

    assert not done.stderr
    assert args["optimizer"] == ("adam", "override")
    assert args["optimizer.lr"] == (0.05, "override")
    assert args["optimizer.betas"] == ([0.9, 0.99], "hydra")
    assert args["epochs"] == (3, "hydra")
    assert args["note"] == ("x", "override")
    assert args["name"] == ("run_3", "hydra")
    assert args["wd"] == ("${oc.env:NOT_SET_ANYWHERE}", "hydra")
    assert args["blocks.0.width"] == (8, "hydra")
    assert not any(name.startswith("hydra") or name == "missing" for name in args)


@pytest.mark.usefixtures("hydra")
def test_a_secret_of_a_nested_config_is_not_recorded(script: Script):
    write_hydra_project(script)
    script.relive("run", "train.py")

    assert args_of(script)["cloud.api_token"] == ({"$secret": ""}, "hydra")
    journals = b"".join(path.read_bytes() for path in script.home.joinpath("runs").rglob("*") if path.is_file())
    assert b"hush-hush-4711" not in journals


@pytest.mark.usefixtures("hydra")
def test_a_config_is_args_without_any_loop(script: Script):
    write_hydra_project(script)
    script.write(HYDRA.replace("range(cfg.epochs)", "()").replace("range(3)", "()"))
    script.relive("run", "train.py", "optimizer.lr=0.05")

    assert args_of(script)["optimizer.lr"] == (0.05, "override")


@pytest.mark.usefixtures("hydra")
@pytest.mark.parametrize("chdir", ["True", pytest.param("False", marks=pytest.mark.long)])
def test_a_hydra_script_is_replayed_with_its_args_and_leaves_its_outputs_alone(script: Script, chdir: str):
    write_hydra_project(script)
    script.relive("run", "train.py", "optimizer.lr=0.05", f"hydra.job.chdir={chdir}", env={"RELIVE_EVERY": "1"})
    script.write("lr: 0.9\n", "conf/optimizer/sgd.yaml")  # as it is now, not as it was then
    script.write(HYDRA.replace("# probe", "print('probe:', weight + cfg.optimizer.lr + cfg.optimizer.momentum)"))
    before = files_of(script)
    answer = relive.replay("probe", home=script.home)
    frame = relive.dataframe("probe", "loss", home=script.home)

    assert len(answer.runs) == 1
    assert len(frame) == 3
    assert frame["probe"].tolist() == [loss + 0.05 + 0.9 for loss in frame["loss"]]
    assert files_of(script) == before


def files_of(script: Script) -> dict[Path, bytes]:
    files = (path for path in script.project.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if ".relive" not in path.parts and path.suffix != ".pyc"}


@pytest.mark.usefixtures("hydra")
def test_the_random_numbers_of_a_resolver_are_not_used_up(script: Script):
    source = """
        import random

        from omegaconf import OmegaConf

        OmegaConf.register_new_resolver("draw", lambda: random.randint(0, 10**9))
        random.seed(1)
        cfg = OmegaConf.create({"seed": "${draw:}", "lr": 0.5})
        lr = cfg.lr
    """
    script.write(source.replace("        ", "") + LOOP + "print(random.random())")
    recorded = script.relive("run", "train.py").stdout
    assert recorded == script(None).stdout
    assert args_of(script)["lr"] == (0.5, "cfg")


# --- absl, jsonargparse, argparse ------------------------------------------------------------------------------------

ABSL = f"""
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_float("lr", 0.1, "learning rate")
flags.DEFINE_integer("seed", 3, "seed")
flags.DEFINE_list("layers", ["4", "8"], "layers")
flags.DEFINE_string("api_key", "", "key")


def main(argv):
    lr = FLAGS.lr
{LOOP.replace(chr(10), chr(10) + "    ")}
    # end


if __name__ == "__main__":
    app.run(main)
"""


def test_flags_of_absl_are_args(script: Script):
    pytest.importorskip("absl")
    script.write(ABSL)
    done = script.relive("run", "train.py", "--lr=0.2", "--api_key", "hush-hush-4711")

    assert not done.stderr
    assert args_of(script) == {
        "lr": (0.2, "override"),
        "seed": (3, "absl"),
        "layers": (["4", "8"], "absl"),
        "api_key": ({"$secret": ""}, "override"),
    }


@pytest.mark.long
def test_an_absl_script_is_replayed_with_its_flags(script: Script):
    pytest.importorskip("absl")
    script.write(ABSL)
    script.relive("run", "train.py", "--lr=0.2", env={"RELIVE_EVERY": "1"})
    script.write(ABSL.replace("# end", 'print(f"probe: {weight + FLAGS.lr}")').replace('"lr", 0.1', '"lr", 0.7'))
    relive.replay("probe", home=script.home)
    frame = relive.dataframe("probe", "loss", home=script.home)

    assert frame["probe"].dropna().unique().tolist() == [frame["loss"].iloc[-1] + 0.2]


JSONARGPARSE = f"""
from dataclasses import dataclass, field

from jsonargparse import auto_cli


@dataclass
class Optimizer:
    lr: float = 0.1
    weight_decay: float = 0.0


def main(optimizer: Optimizer = Optimizer(), seed: int = 1):
    lr = optimizer.lr
{LOOP.replace(chr(10), chr(10) + "    ")}
    # end


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
"""


def test_what_jsonargparse_parsed_is_args(script: Script):
    pytest.importorskip("jsonargparse")
    script.write(JSONARGPARSE)
    done = script.relive("run", "train.py", "--optimizer.lr=0.2", "--seed", "4")
    args = args_of(script)

    assert not done.stderr
    assert args["optimizer.lr"] == (0.2, "override")
    assert args["optimizer.weight_decay"] == (0.0, "jsonargparse")
    assert args["seed"] == (4, "override")


@pytest.mark.long
def test_a_jsonargparse_script_is_replayed_with_its_args(script: Script):
    pytest.importorskip("jsonargparse")
    script.write(JSONARGPARSE)
    script.relive("run", "train.py", "--optimizer.lr=0.2", env={"RELIVE_EVERY": "1"})
    script.write(JSONARGPARSE.replace("# end", 'print(f"probe: {weight + optimizer.lr}")'))
    relive.replay("probe", home=script.home)
    frame = relive.dataframe("probe", "loss", home=script.home)

    assert frame["probe"].dropna().unique().tolist() == [frame["loss"].iloc[-1] + 0.2]


def test_options_of_argparse_are_args_without_any_loop(script: Script):
    script.write("""
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--weight-decay", type=float, default=0.1)
        parser.add_argument("--seed", type=int, default=3)
        parser.parse_args()
    """)
    script.relive("run", "train.py", "--weight-decay", "0.5")

    assert args_of(script) == {"weight_decay": (0.5, "override"), "seed": (3, "argparse")}


# --- dataclasses and pydantic -----------------------------------------------------------------------------------------


def test_models_of_pydantic_are_args(script: Script):
    pytest.importorskip("pydantic")
    source = """
        from pydantic import BaseModel, SecretStr


        class Optimizer(BaseModel):
            lr: float = 0.1


        class Settings(BaseModel):
            optimizer: Optimizer = Optimizer()
            password: SecretStr = SecretStr("hush-hush-4711")


        class Batch(BaseModel):
            size: int = 4


        chosen = Settings(optimizer={"lr": 0.2})
        batch = Batch()
        lr = chosen.optimizer.lr
    """
    script.write(source.replace("        ", "") + LOOP)
    script.relive("run", "train.py")
    args = args_of(script)

    assert args["optimizer.lr"] == (0.2, "chosen")
    assert args["password"][0] == {"$secret": ""}
    assert "size" not in args  # nothing says that this model is a config


def test_the_config_of_an_object_is_args(script: Script):
    script.write("""
        from dataclasses import dataclass
        from enum import Enum


        class Mode(Enum):
            FAST = 1


        @dataclass(slots=True)
        class TrainOptions:
            lr: float = 0.1
            mode: Mode = Mode.FAST


        class Trainer:
            def __init__(self, chosen):
                self.chosen = chosen

            def fit(self):
                weight = 5.0
                for epoch in range(3):
                    for step in range(3):
                        weight -= self.chosen.lr * weight
                    print(f"loss: {weight}")


        Trainer(TrainOptions(lr=0.3)).fit()
    """)
    script.relive("run", "train.py")

    assert args_of(script) == {"lr": (0.3, "chosen"), "mode": ("FAST", "chosen")}


def test_settings_of_one_name_in_two_configs_are_both_args(script: Script):
    source = """
        from dataclasses import dataclass


        @dataclass
        class ModelConfig:
            dim: int = 4


        @dataclass
        class DataConfig:
            dim: int = 8
            seed: int = 1


        model, data = ModelConfig(), DataConfig()
        same = data
        lr = 0.1
    """
    script.write(source.replace("        ", "") + LOOP)
    script.relive("run", "train.py")

    assert args_of(script) == {"model.dim": (4, "model"), "dim": (8, "same"), "seed": (1, "same")}


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("simple_parsing", "simple_parsing.parse(Training)"),
        ("tyro", "tyro.cli(Training)"),
        ("transformers", "transformers.HfArgumentParser(Training).parse_args_into_dataclasses()[0]"),
    ],
)
def test_a_dataclass_parsed_from_the_command_line_is_args(script: Script, library: str, call: str):
    pytest.importorskip(library)
    script.write(f"""
        from dataclasses import dataclass

        import {library}


        @dataclass
        class Training:
            lr: float = 0.1
            weight_decay: float = 0.0


        given = {call}
    """)
    script.relive("run", "train.py", "--lr", "0.3")
    args = args_of(script)

    assert args["lr"] == (0.3, "override")
    assert args["weight_decay"][0] == 0.0
    assert args["weight_decay"][1] in (library, "HfArgumentParser")


def test_a_huge_config_is_bounded_and_the_rest_is_told(script: Script):
    script.write('config = {f"s{n}": n for n in range(3000)}\nlr = 0.1\n' + LOOP)
    done = script.relive("run", "train.py")

    assert len(args_of(script)) == 1000
    assert "args-left-out" in done.stderr
