"""The words that made-up training programs consist of: state of every kind, statements that change it, and probes."""

from __future__ import annotations

HEAD = """
import array
import collections
import contextlib
import copy
import dataclasses
import fractions
import functools
import heapq
import itertools
import random
{imports}import relive
import lib

class Net:
    made = 0
    def __init__(self):
        self.w = [0.5, -0.25, 0.125]
        self.seen = 0
    def step(self, x, lr):
        self.w = [w * 0.9 + lr * x + random.gauss(0, 0.01) for w in self.w]
        self.seen += 1
        return sum(self.w)
    def norm(self):
        return sum(w * w for w in self.w)

class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def add(self, value):
        self.total += value
        self.count += 1
    @property
    def mean(self):
        return self.total / max(1, self.count)

class Loader:
    def __init__(self, items):
        self.items = items
    def __iter__(self):
        order = list(self.items)
        random.shuffle(order)
        return iter(order)
    def __len__(self):
        return len(self.items)

class Slotted:
    __slots__ = ("value",)
    def __init__(self):
        self.value = 0.0

@dataclasses.dataclass
class Point:
    x: float = 0.0
    trail: list = dataclasses.field(default_factory=list)

class Early(Exception):
    pass

class Boom(Exception):
    pass

def grow(items, value):
    items.append(value)

def bump():
    global calls
    calls += 1
    return calls

def counter():
    n = 0
    def add():
        nonlocal n
        n += 1
        return n
    return add

def remember(value, kept=[]):
    kept.append(value)
    return len(kept)

@functools.lru_cache(maxsize=None)
def cached(n):
    return n * 0.5

def twice(function):
    @functools.wraps(function)
    def inner(*args):
        function(*args)
        return function(*args)
    return inner

def apply(function):
    return function()

def probe(net, *more):
    return net.norm() + sum(float(one) for one in more)

{seeding}
net = Net()
best_net = Net()
nets = [Net(), Net()]
noise = random.Random(7)
meter, other = Meter(), Meter()
meters = {{"a": Meter(), "b": [Meter()]}}
slotted, point = Slotted(), Point()
history, table, recent = [], {{}}, collections.deque(maxlen=3)
alias = history
seen, counts, groups = set(), collections.Counter(), collections.defaultdict(list)
deep = {{"a": {{"b": [0.0]}}, "c": (1.0, [2.0])}}
matrix, heap, numbers, raw = [[0.0] * 2 for _ in range(2)], [], array.array("d", [0.0, 1.0]), bytearray(4)
count, best, last, calls, big, words, third = 0, -1e9, 0.0, 0, 1, "", fractions.Fraction(0)
snapshot = None
ticks = counter()
{more}
"""
LIB = """
import relive

total, items = 0.0, []

def watch(value):
    global total
    total += value
    items.append(value)
    {asked}
    return len(items)
"""
NUMBERS = "".join(f"{n * 0.03125}\n" for n in range(2000))

# Statements of an iteration's body. Each is deterministic given the state that a checkpoint should hold.
BODIES = [
    "last = net.step(noise.random(), 0.1)",
    "last = net.step(random.random(), 0.1)",
    "count += 1",
    "history.append(net.norm())",
    "table[count % 3] = last",
    "meter.add(last)",
    "last = last + random.random()",
    "best = max(best, net.norm())",
    "if count % 4 == 3:\n    last = -last",
    "net.w[0] += random.uniform(-0.1, 0.1)",
    "grow(history, last)",
    "last += bump()",
    "last += ticks()",
    "last += remember(last)",
    "Net.made += 1",
    "recent.append(last)",
    "seen.add(count % 7)",
    "counts[count % 3] += 1",
    "groups[count % 2].append(last)",
    "meters['a'].add(last)",
    "meters['b'][0].add(last)",
    "slotted.value += 1.5",
    "point.x += last\npoint.trail.append(count)",
    "point = dataclasses.replace(point, x=point.x + 1)",
    "net.extra = last * 0.5",
    "bump.calls = getattr(bump, 'calls', 0) + 1",
    "try:\n    if count % 3 == 1:\n        raise ValueError(last)\n    last += 0.5\nexcept ValueError as error:\n"
    "    last -= 0.25\n    count += 1",
    "k = 0\nwhile k < 3:\n    k += 1\n    last += 0.125 * k",
    "k = 3\nwhile k:\n    k -= 1\n    last += net.step(0.1 * k, 0.1)",
    "for k in range(2):\n    last += nets[k].step(0.1, 0.2)",
    "meter, other = other, meter",
    "meter = Meter()",
    "table = {**table, 'n': last}",
    "alias.append(1.0)",
    "alias = list(history)",
    "history = history + [last]",
    "best, last = last, best",
    "last = sum(x for x in history[-2:]) + last",
    "history[:] = history[-4:]",
    "del table\ntable = {0: last}",
    "if net.norm() > best:\n    best = net.norm()\n    snapshot = copy.deepcopy(net.__dict__)",
    "best_net = copy.deepcopy(net)",
    "if count % 4 == 2:\n    net.w = list(best_net.w)",
    "nets[count % 2], nets[0] = nets[0], nets[count % 2]",
    "nets.append(copy.deepcopy(net))\ndel nets[0]",
    "deep['a']['b'][0] += last",
    "deep['c'][1].append(last)\ndel deep['c'][1][:-3]",
    "matrix[count % 2][0] += last",
    "heapq.heappush(heap, -last)\nlast = -heap[0]",
    "numbers[count % 2] += last",
    "raw[count % 4] = (raw[count % 4] + 7) % 256",
    "big = big * 3 + count",
    "words = (words + str(count))[-12:]",
    "third += fractions.Fraction(1, 3)",
    "last += cached(count % 5)",
    "last += lib.watch(last * 0.5)",
    "lib.items.append(0.5)",
    "lib.total += 0.25",
    "globals()['calls'] += 2",
    "vars(net)['w'][1] *= 0.5",
    "setattr(net, 'seen', net.seen + 3)",
    "random.seed(count)",
    "local = [last]\nlocal.append(count)\nlast += sum(local)",
    "with contextlib.suppress(IndexError):\n    last += history[count]\n    count += 1",
]
# Iterators can't be kept, not even one that some function might move: so they are there only where they are used.
ITERATORS = {
    "last += float(next(stream))": "stream = iter(range(100000))",
    "last += draw()": "hidden = itertools.count(3)\ndef draw():\n    return next(hidden)",
    "last += next(made)": "def squares():\n    n = 0\n    while True:\n        n += 1\n        yield n * n * 0.01\n"
    "made = squares()",
    "last += next(cycled)": "cycled = itertools.cycle([0.1, 0.2, 0.3])",
    "last += float(handle.readline())": "handle = open('numbers.txt')",
    "for line in handle:\n    last += float(line)\n    break": "handle = open('numbers.txt')",
}
NUMPY_BODIES = [
    "vec += rng.normal(size=3)",
    "vec[count % 3] = last",
    "last += float(np.random.normal())",
    "vec = vec * 0.5",
    "np.add(vec, 1.0, out=vec)",
    "last += float(vec.sum())",
    "view[0] += 1.0",
    "np.random.shuffle(perm)\nlast += float(perm[0])",
    "layers['w'] -= 0.1 * rng.normal(size=(2, 2))",
    "layers['b'] = layers['b'] + last",
    "best_vec = vec.copy()",
    "grid[count % 2, 0]['x'] += 1.5",
]
VECTORS = (
    "np.random.seed(3)\nrng = np.random.default_rng(5)\nvec = np.zeros(3)\nview = vec[:2]\nperm = np.arange(5)\n"
    "layers = {'w': np.ones((2, 2)), 'b': np.zeros(2)}\nbest_vec = vec.copy()\n"
    "grid = np.zeros((2, 1), dtype=[('x', 'f8'), ('y', 'i4')])"
)
LEARN = (
    "loss = model(torch.randn(4, 3)).pow(2).mean()\nopt.zero_grad()\nloss.backward()\nopt.step()\nlast = loss.item()"
)
TORCH_BODIES = [
    LEARN,
    LEARN,
    LEARN.replace("opt.zero_grad()\n", ""),
    "sched.step()",
    "if last < lowest:\n    lowest = last\n    best_state = copy.deepcopy(model.state_dict())",
    "best_state = {k: v.clone() for k, v in model.state_dict().items()}",
    "if best_state is not None and count % 3 == 2:\n    model.load_state_dict(best_state)",
    "ema.lerp_(model[0].weight.detach(), 0.1)",
    "ema = ema * 0.5 + model[0].weight.detach()",
    "for p in model.parameters():\n    p.data.add_(0.01 * torch.rand(1, generator=gen).item())",
    "tensors.append(torch.rand(2))\ndel tensors[:-3]",
    "model.train(not model.training)",
    "with torch.no_grad():\n    last += float(model(torch.ones(2, 3)).sum())",
    "model[0].bias.requires_grad_(not model[0].bias.requires_grad)",
    "opt.param_groups[0]['lr'] *= 0.9",
    "opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)",
    "for (batch,) in loader:\n    last += float(batch.sum()) * random.random()",
    "for (batch,) in loader:\n    opt.zero_grad()\n    loss = model(batch).sum() ** 2\n    loss.backward()\n"
    "    opt.step()",
    "model[0].weight.data = model[0].weight.data * 0.99",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)",
    "swa.update_parameters(model)",
]
TORCH_HEAD = """
torch.manual_seed({seed})
model = torch.nn.Sequential(
    torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))
opt = torch.optim.{optimizer}
sched = torch.optim.lr_scheduler.{scheduler}
swa = torch.optim.swa_utils.AveragedModel(model)
ema, gen, tensors = torch.zeros(4, 3), torch.Generator().manual_seed(3), []
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(12.0).reshape(4, 3)), 2, shuffle=True)
best_state, lowest, loss = None, 1e9, torch.zeros(())
"""
OPTIMIZERS = [
    "SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)", "Adam(model.parameters(), lr=0.01)",
    "AdamW([{'params': model[0].parameters()}, {'params': model[3].parameters(), 'lr': 0.1}], amsgrad=True)",
    "RMSprop(model.parameters(), centered=True)",
]  # fmt: skip
SCHEDULERS = [
    "StepLR(opt, 2, 0.5)", "CosineAnnealingLR(opt, 10)", "LambdaLR(opt, lambda n: 0.9 ** n)",
    "OneCycleLR(opt, 0.1, total_steps=100000)",
]  # fmt: skip
PROBES = [
    "relive.log('probe', probe(net, last, count))",
    "relive.log('probe', probe(net, best, len(history), meter.total))",
    "relive.log('probe', probe(net, sum(map(float, table.values())), noise.getstate()[1][0]))",
    "relive.log('probe', probe(net, random.getstate()[1][1], count))",
    "relive.log('probe', probe(net, calls, sum(recent), len(seen), sum(counts.values())))",
    "relive.log('probe', probe(net, meters['a'].total, meters['b'][0].mean, slotted.value, other.total))",
    "relive.log('probe', probe(net, ticks.__closure__[0].cell_contents, len(remember.__defaults__[0]), Net.made))",
    "relive.log('probe', probe(net, getattr(net, 'extra', 0.0), getattr(bump, 'calls', 0), net.seen))",
    "relive.log('probe', probe(net, len(alias), sum(history)))\nlast_probe = last",
    "relive.log('probe', f'{last!r} {count} {sorted(seen)} {words} {big} {third}')",
    "relive.log('probe', probe(best_net, *(one.norm() for one in nets)))",
    "relive.log('probe', repr((snapshot, point, deep, matrix)))",
    "relive.log('probe', repr((heap, list(numbers), bytes(raw), dict(groups))))",
    "relive.log('probe', probe(net, lib.total, sum(lib.items), len(lib.items)))",
    "if count % 2:\n    relive.log('probe', probe(net, last))",
    "relive.log('probe', count)\nrelive.log('probe', last)",
]
NUMPY_PROBES = [
    "relive.log('probe', probe(net, vec.sum(), view[0], np.random.get_state()[1][0], "
    "rng.bit_generator.state['uinteger']))",
    "relive.log('probe', vec * 2)",
    "relive.log('probe', probe(net, perm[0], layers['w'].sum(), layers['b'].sum(), best_vec.sum(), grid['x'].sum()))",
]
TORCH_PROBES = [
    "relive.log('probe', sum(p.norm().item() for p in model.parameters()))",
    "relive.log('probe', sum(p.grad.norm().item() for p in model.parameters() if p.grad is not None))",
    "relive.log('probe', sum(float(t.sum()) for s in opt.state_dict()['state'].values() for t in s.values() "
    "if torch.is_tensor(t)))",
    "relive.log('probe', opt.param_groups[0]['lr'] + sched.last_epoch)",
    "relive.log('probe', int(torch.get_rng_state().sum()) + int(gen.get_state().sum()))",
    "relive.log('probe', float(ema.sum()) + sum(float(t.sum()) for t in tensors))",
    "relive.log('probe', repr(best_state and sorted((k, float(v.sum())) for k, v in best_state.items())))",
    "relive.log('probe', sum(float(b.sum()) for b in model.buffers()) + sum(float(p.sum()) for p in swa.parameters()))",
    "relive.log('probe', f'{model.training} {float(loss)!r} {lowest!r} {model[0].bias.requires_grad}')",
    "relive.log('probe', model[0].weight.detach().clone())",
]
LIB_PROBE = "relive.log('probe', total + value)"
