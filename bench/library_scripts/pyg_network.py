"""A small graph network of PyG, with a loader that samples graphs."""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import BatchNorm, GCNConv, global_mean_pool

torch.manual_seed(16)


class Net(torch.nn.Module):
    """Two convolutions."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = GCNConv(3, 8), BatchNorm(8), GCNConv(8, 2)
        self.seen = 0

    def forward(self, batch):
        self.seen += batch.num_graphs
        hidden = self.norm(self.first(batch.x, batch.edge_index)).relu()
        return global_mean_pool(self.second(hidden, batch.edge_index), batch.batch)


graphs = [
    Data(x=torch.randn(6, 3), edge_index=torch.randint(0, 6, (2, 12)), y=torch.tensor([at % 2])) for at in range(16)
]
loader = DataLoader(graphs, batch_size=4, shuffle=True)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
best = {"loss": 1e9, "epoch": -1}

for epoch in range(6):
    total = 0.0
    for batch in loader:
        loss = torch.nn.functional.cross_entropy(net(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    scheduler.step(total)
    if total < best["loss"]:
        best.update(loss=total, epoch=epoch)
    print("loss:", total)
    # probe late_seen: float(net.seen)
    # probe late_best: best["loss"]
    # probe late_rate: optimizer.param_groups[0]["lr"]
# probe after_best: best["loss"]
# probe after_mean: net.norm.module.running_mean.double().sum().item()
