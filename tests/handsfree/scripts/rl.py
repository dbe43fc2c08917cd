"""Reinforcement learning: an environment, a replay buffer, and epsilon that goes down."""

import random
from collections import deque

import numpy as np


class Corridor:
    """Walk to the right end; every step costs."""

    def __init__(self, size):
        self.size, self.at = size, 0

    def reset(self):
        self.at = 0
        return self.at

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        done = self.at == self.size - 1
        return self.at, (1.0 if done else -0.1), done


class Agent:
    def __init__(self, size):
        self.q = np.zeros((size, 2))
        self.buffer = deque(maxlen=64)
        self.epsilon = 0.9

    def act(self, state):
        if random.random() < self.epsilon:
            return random.randrange(2)
        return int(self.q[state].argmax())

    def update(self):
        for state, action, reward, after, done in random.sample(list(self.buffer), min(8, len(self.buffer))):
            target = reward + (0 if done else 0.9 * self.q[after].max())
            self.q[state, action] += 0.3 * (target - self.q[state, action])


random.seed(0)
env, agent = Corridor(6), Agent(6)
returns = []
# probe before: agent.epsilon
for episode in range(6):
    state, total, steps, done = env.reset(), 0.0, 0, False
    while not done and steps < 40:
        action = agent.act(state)
        after, reward, done = env.step(action)
        agent.buffer.append((state, action, reward, after, done))
        agent.update()
        state, total, steps = after, total + reward, steps + 1
        # probe inside: float(agent.q.sum()) + len(agent.buffer)
    agent.epsilon *= 0.8
    returns.append(total)
    # probe epoch: agent.epsilon + float(agent.q.max())
    print(f"episode {episode} return: {total:.2f} steps: {steps}")
# probe after: sum(returns) + float(agent.q[0, 1])
print("average return", sum(returns) / len(returns))
