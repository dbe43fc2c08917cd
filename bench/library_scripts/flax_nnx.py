"""flax: modules that hold their state, an optimizer, metrics and streams of random numbers."""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class Net(nnx.Module):
    """A normalized layer with dropout."""

    def __init__(self, rngs):
        self.first, self.norm = nnx.Linear(3, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.drop, self.last = nnx.Dropout(0.2, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


rng = np.random.default_rng(18)
net = Net(nnx.Rngs(params=0, dropout=1))
optimizer = nnx.Optimizer(net, optax.adam(0.01), wrt=nnx.Param)
metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))


@nnx.jit
def step(net, optimizer, metrics, x):
    def loss_of(net):
        return jnp.mean((net(x) - x.sum(1, keepdims=True)) ** 2)

    loss, grads = nnx.value_and_grad(loss_of)(net)
    optimizer.update(net, grads)
    metrics.update(loss=loss)
    return loss


for epoch in range(6):
    for _ in range(2):
        loss = step(net, optimizer, metrics, jnp.asarray(rng.normal(size=(8, 3)), dtype=jnp.float32))
    print("loss:", float(loss))
    # probe late_mean: float(metrics.compute()["loss"])
    # probe late_norm: float(net.norm.mean[...].sum())
# probe after_mean: float(metrics.compute()["loss"])
# probe after_weights: float(net.first.kernel[...].sum())
# probe after_steps: float(optimizer.step[...])
