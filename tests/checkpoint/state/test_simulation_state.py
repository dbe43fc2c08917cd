"""Laws of environments: those of gymnasium are part of the state of a training."""

from __future__ import annotations

import pytest

import relive
from relive.hindsight import Question, ReplaySession, plan_replay
from relive.store import Home
from tests.conftest import Script

pytestmark = pytest.mark.long

AGENT = """
    import gymnasium
    import torch

    env = gymnasium.make("CartPole-v1")
    env.reset(seed=3)
    inner = env.unwrapped
    torch.manual_seed(0)
    policy = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)

    def play(env):
        state, _ = env.reset()
        total = 0.0
        for _ in range(20):
            scores = policy(torch.as_tensor(state))
            state, reward, over, _, _ = env.step(int(scores.argmax()))
            loss = (scores ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(state.sum())
            # probe inside
            if over:
                break
        return total

    for episode in range(5):
        total = play(env)
        # probe
    if not env.has_wrapper_attr("no_such_thing"):
        print("last:", float(inner.state[0]))
"""
ASKED = AGENT.replace("# probe inside", "print('probe_inside:', total)").replace("# probe", "print('probe:', total)")


VECTOR = """
    import gymnasium
    import torch

    def maker(seed):
        def make():
            env = gymnasium.make("CartPole-v1")
            env = gymnasium.wrappers.TransformReward(env, lambda reward: reward * 2)
            env.action_space.seed(seed)
            return env
        return make

    envs = gymnasium.vector.SyncVectorEnv([maker(1), maker(2)])
    states, _ = envs.reset(seed=5)
    torch.manual_seed(0)
    policy = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    for step in range(30):
        scores = policy(torch.as_tensor(states))
        states, rewards, _, _, _ = envs.step(envs.action_space.sample())
        optimizer.zero_grad()
        (scores ** 2).mean().backward()
        optimizer.step()
        # probe
"""


def test_a_vector_of_environments_goes_on_where_it_was(script: Script):
    script.write(VECTOR)
    done = script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})
    script.write(VECTOR.replace("# probe", "print('probe:', float(states.sum() + rewards.sum()))"))
    script.relive("run", "train.py", env={"RELIVE_HOME": str(script.project.parent / "reference")})
    with ReplaySession(Home(script.home)) as session:
        plan = plan_replay(session, Question(("probe",), "step = 25", workers=1))
        (case,) = plan.cases
    relive.replay("probe", where="step = 25", workers=1, home=script.home)
    expected = relive.dataframe("probe", home=script.project.parent / "reference")

    assert "state-left-out" not in done.stderr
    assert (case.plan.resume, case.plan.iterations) == ("resume", 1)
    assert relive.dataframe("probe", home=script.home)["probe"].tolist() == expected["probe"].tolist()[25:26]


def test_an_episode_is_replayed_in_the_environment_as_it_was(script: Script):
    script.write(AGENT)
    script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})
    script.write(ASKED)
    script.relive("run", "train.py", env={"RELIVE_HOME": str(script.project.parent / "reference")})
    with ReplaySession(Home(script.home)) as session:
        plan = plan_replay(session, Question(("probe", "probe_inside"), "episode = 4", workers=1))
        (case,) = plan.cases
    (answer,) = relive.replay("probe", "probe_inside", where="episode = 4", workers=1, home=script.home).runs
    expected = relive.dataframe("probe", home=script.project.parent / "reference")

    assert case.plan.resume == "resume"
    assert answer.missing == []
    assert relive.dataframe("probe", home=script.home)["probe"].tolist() == expected["probe"].tolist()[-1:]
