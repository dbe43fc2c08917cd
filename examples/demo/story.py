"""The story of relive on a real training: three runs that log almost nothing, and questions to them afterwards.

usage: python story.py [FOLDER [EPOCHS]]

FOLDER, build/demo unless given, is made anew; the project with its runs stays there.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from plot import plot

HERE, START = Path(__file__).parent, Path.cwd()

# A question is a statement, and the line before which it is added to train.py.
RIGHT = "(model(images).argmax(1) == labels)"
QUESTIONS = {
    "final_acc": (f'relive.log("final_acc", {RIGHT}.float().mean().item())\n', "torch.save("),
    "test_acc": (f'        relive.log("test_acc", {RIGHT}.float().mean().item())\n', "        print("),
    "step_loss": ('            relive.log("step_loss", loss.item())\n', "            total +="),
    "crosses": (f'        relive.log("crosses", {RIGHT}[labels == 3].float().mean().item())\n', "        print("),
}


def main(folder: Path, epochs: int) -> None:
    make_project(folder)
    os.chdir(folder)
    os.environ.setdefault("COLUMNS", "120")  # where the output is no terminal

    say("You train a network, and log the loss of each epoch.")
    execute("python make_data.py")
    training_s = execute(f"python train.py --kwargs epochs={epochs}")
    first = newest_run()

    say("Another run, with another learning rate. It is killed on the way.")
    kill_after(f"python train.py --kwargs epochs={epochs} lr=0.003", epoch=max(1, epochs // 4))
    killed = newest_run()

    say("You go on with the code: a variable gets a better name, and the weights decay. A third, short run.")
    edit(re.sub(r"\bnet\b", "model", source()).replace("lr=lr)", "lr=lr, weight_decay=1e-3)"))
    execute(f"python train.py --kwargs epochs={max(2, epochs // 4)} lr=0.003")
    execute("relive runs")

    say("A week later: how accurate was the first network in the end? It was not logged. Add the line now.")
    took = {"its end": ask("final_acc", f"--run {first}")}
    say("And after each epoch?")
    took["each of its epochs"] = ask("test_acc", f"--run {first}")
    say("And what was the loss in each step of its last two epochs?")
    took["each step of its last two epochs"] = ask("step_loss", f"'epoch >= {epochs - 2}' --run {first}")
    execute("relive dataframe test_acc loss --where 'lr = 0.001'")

    say("You added the lines to the second version of the code. The run is of the first, where the model was a net:")
    execute(f"relive replay test_acc --again --show-patch {first}")

    say("The killed run can be asked as well, up to the moment of its death.")
    took["the epochs of the killed run"] = ask("test_acc", f"--run {killed}")

    say("Which part of the crosses was recognised, after each epoch of every run, in both versions of the code?")
    took["the epochs of all three runs"] = ask("crosses")
    execute('relive sql "select run, lr, outcome, max(crosses) best, count(*) epochs '
            "from frame('lr', 'crosses') join runs using (run) group by all order by best desc\"")  # fmt: skip

    say(f"What the answers took, beside the {training_s:.0f} s of running the training again")
    print()
    for what, seconds in took.items():
        print(f"  {what:34} {seconds:6.1f} s, {training_s / seconds:5.1f} times as fast")
    show(folder)


# --- the project ------------------------------------------------------------------------------------------------------


def make_project(folder: Path) -> None:
    """A git repository of its own, so that versions of the code are not stored in one around it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("train.py", "make_data.py"):
        shutil.copy(HERE / name, folder)
    (folder / ".gitignore").write_text("data/\nmodel.pt\n")
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)


def source() -> str:
    return Path("train.py").read_text(encoding="utf-8")


def edit(text: str) -> None:
    """Changes train.py, and shows how."""
    lines = list(difflib.unified_diff(source().splitlines(), text.splitlines(), n=0, lineterm=""))
    print("\ntrain.py", *(line for line in lines[2:] if not line.startswith("@@")), sep="\n", flush=True)
    Path("train.py").write_text(text, encoding="utf-8")


def newest_run() -> str:
    found = subprocess.run(["relive", "runs", "--json", "-n", "1"], check=True, capture_output=True, text=True)
    return str(json.loads(found.stdout.splitlines()[0])["run"])[:8]


# --- what is told and done --------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(f"\n\n== {text}", flush=True)


def execute(command: str) -> float:
    """Runs a command in sight, and returns how long it took."""
    print(f"\n$ {command}", flush=True)
    begun = time.perf_counter()
    subprocess.run(shlex.split(command), check=True)
    return time.perf_counter() - begun


def ask(name: str, rest: str = "") -> float:
    """Adds the statement of a question if it is not there yet, replays, and returns how long that took."""
    statement, place = QUESTIONS[name]
    if statement not in source():
        edit(source().replace(place, statement + place, 1))
    return execute(f"relive replay {name} {rest}".strip() + " --yes")


def kill_after(command: str, epoch: int) -> None:
    """Runs a command until it has printed the line of an epoch, and kills it with SIGKILL."""
    print(f"\n$ {command} &", flush=True)
    with subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout
        for line in training.stdout:
            print(line, end="", flush=True)
            if line.startswith(f"epoch {epoch:2}"):
                training.send_signal(signal.SIGKILL)
                break
    print("$ kill -9 $!", flush=True)


# --- the picture ------------------------------------------------------------------------------------------------------


def show(folder: Path) -> None:
    """Draws the accuracies, and shows the page of the runs: until Enter at a terminal, else for a photograph."""
    drawing, picture = folder.with_suffix(".svg"), folder.with_suffix(".png")
    import relive

    plot(relive.dataframe("lr", "crosses", home=folder / ".relive"), drawing)
    say("A picture of values that no run logged")
    print(f"\nThe crosses that were recognised, by epoch: {relative(drawing)}\n\n$ relive ui", flush=True)
    with subprocess.Popen(
        ["relive", "ui", "--no-browser", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as page:
        assert page.stdout
        address = page.stdout.readline().strip()
        wait_for(address.partition("/login")[0] + "/login")
        if sys.stdin.isatty() and sys.stdout.isatty():
            input(f"The page of these runs: {address}\nOpen it in a browser; Enter ends the demo. ")
        else:
            subprocess.run([sys.executable, HERE / "photograph.py", address, relative(picture)], check=False)
            print(f"The page of these runs was at {address.partition('/login')[0]}/")
        page.send_signal(signal.SIGINT)
    print(f"The project stays in {relative(folder)}; `relive ui` there opens the page again.")


def wait_for(address: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(address, timeout=10).close()
        except OSError:
            time.sleep(0.1)
        else:
            return


def relative(path: Path) -> Path:
    return path.relative_to(START) if path.is_relative_to(START) else path


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0] if given else "build/demo").resolve(), int(given[1]) if len(given) > 1 else 20)
