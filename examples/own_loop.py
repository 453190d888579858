"""POP in a PyTorch loop of your own: a loss that knows the candidate sets, and a step at the end of every epoch."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import oneof
from oneof.candidates.generate import Flip, generate
from oneof.metrics import true_labels_removed

x, y = load_digits(return_X_y=True)
x = torch.tensor(x / 16, dtype=torch.float32)
y = torch.tensor(y)
candidates = generate(y.numpy(), 10, Flip(rate=0.3), seed=0)[:1400]  # in place of your own: oneof.read(...)
loader = DataLoader(TensorDataset(torch.arange(1400), x[:1400]), batch_size=64, shuffle=True)

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
criterion = oneof.CandidateLoss("proden", candidates)
purifier = oneof.Purifier(oneof.Pop(warm_up=5), criterion)

for _ in range(30):
    for index, inputs in loader:
        loss = criterion(net(inputs), index)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    purifier.step()

accuracy = (net(x[1400:]).argmax(1) == y[1400:]).float().mean()
size = criterion.candidates.sum(1).float().mean()
kept = 1 - true_labels_removed(criterion.candidates, y[:1400])
print(f"accuracy {accuracy:.3f}, labels per set {size:.2f}, true labels kept {kept:.3f}")
