"""oneof's parts in a PyTorch loop of your own: a method's loss and memory, and POP, around any network."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from oneof import Pop
from oneof.candidates.generate import Flip, generate
from oneof.methods import Proden

x, y = load_digits(return_X_y=True)
x = torch.tensor(x / 16, dtype=torch.float32)
candidates = torch.tensor(generate(y, 10, Flip(rate=0.3), seed=0))  # your own sets: oneof.read(...).mask
train, test = torch.arange(1400), torch.arange(1400, len(x))
candidates = candidates[train]

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
method, pop = Proden(), Pop(warm_up=5)
memory = method.init(candidates)  # one row per training example
state = pop.init(candidates)

for epoch in range(30):
    for at in torch.randperm(len(train)).split(64):
        logits = net(x[train[at]])
        loss = method.loss(logits, candidates[at], memory[at]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            memory[at] = method.update(logits, candidates[at], memory[at])
            if pop.observing(epoch):
                state.seen[at] = pop.observe(state.seen[at], logits, candidates[at])
    if pop.event(epoch):
        candidates, fallen = pop.remove(candidates, state)
        state = pop.advance(state, fallen, share=(fallen > 0).float().mean())

accuracy = (net(x[test]).argmax(1).numpy() == y[test]).mean()
size = candidates.sum(1).float().mean()
print(
    f"accuracy {accuracy:.3f}, labels per set {size:.2f}, true labels kept {np.mean(candidates[range(1400), y[:1400]].numpy()):.3f}"
)
