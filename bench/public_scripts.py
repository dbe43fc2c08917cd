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


def _waves() -> bytes:
    import io

    import numpy as np
    import torch

    file = io.BytesIO()
    torch.save(np.sin(np.arange(30)[None] / 4 + np.arange(8)[:, None]), file)
    return file.getvalue()


def _papers() -> bytes:
    """Each with its words and its subject, as the Cora data set has them."""
    rows = [[str(at), *(str((at * word) % 3 // 2) for word in range(1, 13)), f"subject_{at % 4}"] for at in range(1700)]
    return "\n".join(" ".join(row) for row in rows).encode()


def _citations() -> bytes:
    return "\n".join(f"{at} {(at * 7 + 3) % 1700}" for at in range(1700)).encode()


_TUTORIAL = "yunjey+pytorch-tutorial"
_SHORT = (("num_epochs = 5", "num_epochs = 3"), ("num_epochs = 200", "num_epochs = 3"),
          ("num_epochs = 80", "num_epochs = 3"), ("num_epochs = 15", "num_epochs = 3"),
          ("num_epochs = 2\n", "num_epochs = 3\n"), ("num_epochs = 60", "num_epochs = 4"),
          ("batch_size = 100", "batch_size = 32"), ("num_samples = 1000", "num_samples = 10"),
          ("hidden_size = 1024", "hidden_size = 32"), ("embed_size = 128", "embed_size = 16"))  # fmt: skip
_GANS = ("gan aae acgan bgan cgan dcgan dragan ebgan infogan lsgan relativistic_gan sgan softmax_gan wgan wgan_div "
         "wgan_gp began").split()  # fmt: skip
_EPOCHS = ("--epochs", "3", "--batch-size", "32")
_CORA: Files = {"cora/cora.content": _papers, "cora/cora.cites": _citations}
_TEXTS = ("1-1.NNLM/NNLM", "1-2.Word2Vec/Word2Vec-Skipgram(Softmax)", "2-1.TextCNN/TextCNN", "3-1.TextRNN/TextRNN",
          "3-2.TextLSTM/TextLSTM", "3-3.Bi-LSTM/Bi-LSTM", "4-1.Seq2Seq/Seq2Seq",
          "4-2.Seq2Seq(Attention)/Seq2Seq(Attention)", "4-3.Bi-LSTM(Attention)/Bi-LSTM(Attention)",
          "5-1.Transformer/Transformer", "5-1.Transformer/Transformer(Greedy_decoder)", "5-2.BERT/BERT")  # fmt: skip
_FEW = tuple((f"for epoch in range({many})", "for epoch in range(4)") for many in (20, 100, 1000, 2000, 5000, 10000))
_LESSONS = ("301_regression 302_classification 304_save_reload 305_batch_train 306_optimizer 401_CNN "
            "402_RNN_classifier 403_RNN_regressor 404_autoencoder 405_DQN_Reinforcement_learning 406_GAN "
            "501_why_torch_dynamic_graph 503_dropout 504_batch_normalization").split()  # fmt: skip
_LESSON = (*((f"for t in range({many})", "for t in range(5)") for many in (100, 200, 500)),
           *((f"for step in range({many})", "for step in range(5)") for many in (100, 10000)),
           ("for i in range(60)", "for i in range(5)"), ("EPOCH = 12", "EPOCH = 3"), ("EPOCH = 10\n", "EPOCH = 3\n"),
           ("EPOCH = 1 ", "EPOCH = 3 "), ("[0, :60]", "[0, :5]"), ("DOWNLOAD_MNIST = False", "DOWNLOAD_MNIST = True"),
           ("import gym\n", "import gymnasium as gym\n"),
           ("env = gym.make('CartPole-v0')", "env = gym.make('CartPole-v1'); env.reset(seed=1)"),
           ("for i_episode in range(400)", "for i_episode in range(5)"),
           ("MEMORY_CAPACITY = 2000", "MEMORY_CAPACITY = 20"),
           ("isinstance(env.action_space.sample(), int)", "True"), ("        env.render()\n", ""),
           ("HAS_SK = True", "HAS_SK = False"), ("torch.load('net.pkl')", "torch.load('net.pkl', weights_only=False)"),
           ("s = env.reset()", "s, _ = env.reset()"), ("s_, r, done, info =", "s_, r, done, _, info ="))  # fmt: skip
_AGENTS = ("REINFORCE", "actor_critic", "acer", "ddpg", "dqn", "ppo", "ppo-continuous", "ppo-lstm", "sac", "vtrace")
_AGENT = (("import gym\n", "import gymnasium as gym\n"), ("for n_epi in range(10000)", "for n_epi in range(6)"),
          ("gym.make('CartPole-v1')", "gym.make('CartPole-v1'); env.reset(seed=1)"),
          ("gym.make('Pendulum-v1')", "gym.make('Pendulum-v1', max_episode_steps=40); env.reset(seed=1)"),
          ("gym.make('Pendulum-v1', max_episode_steps=200, autoreset=True)",
           "gym.make('Pendulum-v1', max_episode_steps=40); env.reset(seed=1)"),
          ("memory.size()>2000", "memory.size()>20"), ("memory.size()>1000", "memory.size()>20"),
          ("memory.size()>500", "memory.size()>20"), ("print_interval = 20", "print_interval = 2"),
          ("batch_size      = 32", "batch_size      = 8"), ("batch_size    = 32", "batch_size    = 8"))  # fmt: skip
_STEPS = ("--no-cuda", "--total-timesteps")
_PENDULUM = (
    *_STEPS,
    "60",
    "--env-id",
    "Pendulum-v1",
    "--learning-starts",
    "20",
    "--batch-size",
    "8",
    "--buffer-size",
    "100",
)
_ROLLOUTS = (*_STEPS, "96", "--num-steps", "8", "--num-envs", "2", "--num-minibatches", "2")
_CLEAN = {
    "dqn": (*_STEPS, "60", "--learning-starts", "20", "--batch-size", "8", "--buffer-size", "100"),
    "c51": (*_STEPS, "60", "--learning-starts", "20", "--batch-size", "8", "--buffer-size", "100"),
    "ppo": _ROLLOUTS,
    "pqn": _ROLLOUTS,
    "ppo_continuous_action": (*_ROLLOUTS, "--env-id", "Pendulum-v1"),
    "rpo_continuous_action": (*_ROLLOUTS, "--env-id", "Pendulum-v1"),
    "ddpg_continuous_action": _PENDULUM,
    "td3_continuous_action": _PENDULUM,
    "sac_continuous_action": _PENDULUM,
}

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
    *(Public("pytorch+examples", f"{name}.py", ("--log-interval", "2"), edits=(("in count(1)", "in range(1, 7)"),),
             folder="reinforcement_learning") for name in ("reinforce", "actor_critic")),
    Public("pytorch+examples", "train.py", ("--steps", "3"), folder="time_sequence_prediction",
           edits=(("'traindata.pt')", "'traindata.pt', weights_only=False)"), ("future = 1000", "future = 10")),
           files={"traindata.pt": _waves}),
    Public("pytorch+examples", "main.py", ("--epochs", "4", "--val-every", "1", "--no-accel"), folder="gat",
           files=_CORA),
    Public("pytorch+examples", "main.py", ("--epochs", "4", "--val-every", "1", "--no-accel"), folder="gcn",
           files=_CORA, edits=(("with requests.get(cora_url, stream=True) as tgz_file:", "if False:"),)),
    Public("pytorch+examples", "main.py", ("--epochs", "3", "--batch-size", "32", "--no-accel", "--log-interval", "1"),
           folder="siamese_network"),
    Public("pytorch+examples", "main.py", ("--dummy", "--epochs", "2", "-b", "16", "-j", "0", "-a", "resnet18",
           "--no-accel"), folder="imagenet"),
    Public("pytorch+examples", "single_gpu.py", ("3", "1"), folder="distributed/ddp-tutorial-series",
           edits=(("device = 0 ", 'device = "cpu" '), ("pin_memory=True", "pin_memory=False"))),
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
    Public("weiaicunzai+pytorch-cifar100", "train.py", ("-net", "squeezenet", "-b", "32"),
           edits=(("EPOCH = 200", "EPOCH = 3"), ("num_workers=4", "num_workers=0"), ("MILESTONES = [60, 120, 160]",
                  "MILESTONES = [1, 2, 3]"))),
    *(Public("graykode+nlp-tutorial", f"{path.partition('/')[2]}.py", edits=_FEW, folder=path.partition("/")[0])
      for path in _TEXTS),
    *(Public("MorvanZhou+PyTorch-Tutorial", f"{name}.py", edits=_LESSON, folder="tutorial-contents")
      for name in _LESSONS),
    *(Public("seungeunrho+minimalRL", f"{name}.py", edits=_AGENT) for name in _AGENTS),
    *(Public("vwxyzjn+cleanrl", f"{name}.py", args, folder="cleanrl", search=("..",),
             edits=(("np.clip(obs, -10, 10))", "np.clip(obs, -10, 10), env.observation_space)"),))
      for name, args in _CLEAN.items()),
)  # fmt: skip
