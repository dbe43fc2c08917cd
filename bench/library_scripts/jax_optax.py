"""JAX with optax: parameters are dicts, the key is split by hand."""

import jax
import jax.numpy as jnp
import optax

key = jax.random.key(17)
key, first = jax.random.split(key)
params = {"w": jax.random.normal(first, (4, 1)) * 0.1, "b": jnp.zeros(1)}
schedule = optax.cosine_decay_schedule(0.1, 20)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
state = optimizer.init(params)
average = optax.EmaState(count=jnp.zeros([], jnp.int32), ema=params)
smooth = optax.ema(0.9)
losses = []


def loss_of(params, x):
    return jnp.mean((x @ params["w"] + params["b"] - x.sum(1, keepdims=True)) ** 2)


@jax.jit
def step(params, state, average, x):
    loss, grads = jax.value_and_grad(loss_of)(params, x)
    updates, state = optimizer.update(grads, state, params)
    params = optax.apply_updates(params, updates)
    _, average = smooth.update(params, average)
    return params, state, average, loss


for epoch in range(6):
    for _ in range(3):
        key, drawn = jax.random.split(key)
        params, state, average, loss = step(params, state, average, jax.random.normal(drawn, (8, 4)))
        losses.append(loss)
    print("loss:", float(loss))
    # probe late_weights: float(params["w"].sum())
    # probe late_losses: float(sum(losses))
    # probe late_average: float(average.ema["w"].sum())
# probe after_weights: float(params["w"].sum())
# probe after_count: float(average.count)
# probe after_draw: float(jax.random.normal(key))
