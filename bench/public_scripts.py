"""Public training scripts that run without their data: where each is, and how it is made small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Files = Mapping[str, Callable[[], bytes]]


@dataclass(frozen=True, slots=True)
class Public:
    """A script of a public repository. `edits` replace texts of it, to make it short; `files` are made for it."""

    repository: str  # owner+name
    script: str
    args: tuple[str, ...] = ()
    edits: tuple[tuple[str, str], ...] = ()
    files: Files = field(default_factory=dict)
    folder: str = ""  # of the repository, in which it is started
    search: tuple[str, ...] = ()  # folders on PYTHONPATH

    @property
    def name(self) -> str:
        return f"{self.repository.partition('+')[2]}/{self.script}"


def _words() -> bytes:
    names = ["".join(chr(97 + (i * k + j) % 26) for j in range(3 + i % 5)) for i in range(40) for k in (1, 3, 7)]
    return "\n".join(names).encode()


def _text() -> bytes:
    return b" ".join(b"the cat %d sat on the mat <eos>\n" % (i % 17) for i in range(300))


def _tokens() -> bytes:
    import numpy as np

    return bytes(np.random.default_rng(0).integers(0, 60, 4000).astype(np.uint16).tobytes())


def _meta() -> bytes:
    import pickle

    return pickle.dumps({"vocab_size": 60, "stoi": {}, "itos": {}})


_TUTORIAL = "yunjey+pytorch-tutorial"
_SHORT = (("num_epochs = 5", "num_epochs = 3"), ("num_epochs = 200", "num_epochs = 3"),
          ("num_epochs = 80", "num_epochs = 3"), ("num_epochs = 15", "num_epochs = 3"),
          ("num_epochs = 2\n", "num_epochs = 3\n"), ("num_epochs = 60", "num_epochs = 4"),
          ("batch_size = 100", "batch_size = 32"), ("num_samples = 1000", "num_samples = 10"),
          ("hidden_size = 1024", "hidden_size = 32"), ("embed_size = 128", "embed_size = 16"))  # fmt: skip
_GANS = ("gan aae acgan bgan cgan dcgan dragan ebgan infogan lsgan relativistic_gan sgan softmax_gan wgan wgan_div "
         "wgan_gp began").split()  # fmt: skip
_EPOCHS = ("--epochs", "3", "--batch-size", "32")

SCRIPTS: tuple[Public, ...] = (
    Public("pytorch+examples", "main.py", (*_EPOCHS, "--log-interval", "1", "--no-accel"), folder="mnist"),
    Public("pytorch+examples", "main.py", (*_EPOCHS, "--log-interval", "1"), folder="mnist_rnn"),
    Public("pytorch+examples", "main.py", (*_EPOCHS, "--log-interval", "1", "--no-accel"), folder="vae"),
    Public("pytorch+examples", "main.py", edits=(("1e-3", "0.3"),), folder="regression"),
    Public("pytorch+examples", "main.py", ("--epochs", "3", "--train_size", "96", "--test_size", "32"),
           folder="mnist_forward_forward"),
    Public("pytorch+examples", "main.py", ("--dataset", "fake", "--niter", "2", "--batchSize", "16", "--workers", "0",
           "--ngf", "4", "--ndf", "4", "--manualSeed", "1"), folder="dcgan"),
    Public("pytorch+examples", "main.py", ("--epochs", "3", "--emsize", "16", "--nhid", "16", "--log-interval", "5",
           "--data", "data/small"), folder="word_language_model",
           files={f"data/small/{part}.txt": _text for part in ("train", "valid", "test")}),
    *(Public(_TUTORIAL, "main.py", edits=_SHORT, folder=f"tutorials/{where}") for where in (
        "01-basics/linear_regression", "01-basics/logistic_regression", "01-basics/feedforward_neural_network",
        "02-intermediate/convolutional_neural_network", "02-intermediate/recurrent_neural_network",
        "02-intermediate/bidirectional_recurrent_neural_network", "02-intermediate/deep_residual_network",
        "03-advanced/generative_adversarial_network", "03-advanced/variational_autoencoder")),
    Public(_TUTORIAL, "main.py", edits=_SHORT, folder="tutorials/02-intermediate/language_model",
           files={"data/train.txt": _text}),
    *(Public("eriklindernoren+PyTorch-GAN", f"{name}.py", ("--n_epochs", "3", "--batch_size", "32", "--n_cpu", "0"),
             folder=f"implementations/{name}") for name in _GANS),
    Public("karpathy+makemore", "makemore.py", ("--max-steps", "6", "--n-layer", "1", "--n-embd", "8", "--num-workers",
           "0"), files={"names.txt": _words}),
    Public("karpathy+nanoGPT", "train.py", ("--device=cpu", "--compile=False", "--dataset=small", "--max_iters=6",
           "--eval_interval=3", "--eval_iters=2", "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=16",
           "--batch_size=4", "--gradient_accumulation_steps=2", "--dtype=float32", "--log_interval=1"),
           files={"data/small/train.bin": _tokens, "data/small/val.bin": _tokens, "data/small/meta.pkl": _meta}),
    Public("karpathy+minGPT", "adder.py", ("--trainer.max_iters=6", "--trainer.num_workers=0"),
           edits=(("% 500 == 0", "% 1000 == 999"),), folder="projects/adder", search=("../..",)),
    Public("karpathy+minGPT", "chargpt.py", ("--trainer.max_iters=6", "--trainer.num_workers=0",
           "--model.model_type=gpt-nano"), edits=(("% 500 == 0", "% 1000 == 999"),), folder="projects/chargpt",
           search=("../..",), files={"input.txt": _text}),
    Public("kuangliu+pytorch-cifar", "main.py",
           edits=(("start_epoch+200", "start_epoch+3"), ("net = SimpleDLA()", "net = LeNet()"),
                  ("num_workers=2", "num_workers=0"),
                  ("_, term_width = os.popen('stty size', 'r').read().split()", "term_width = 80"))),
)  # fmt: skip
