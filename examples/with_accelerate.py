"""POP with Accelerate, on one device or several: `accelerate launch examples/with_accelerate.py`."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import oneof
from oneof.candidates.generate import Flip, generate

x, y = load_digits(return_X_y=True)
x = torch.tensor(x / 16, dtype=torch.float32)
candidates = generate(y, 10, Flip(rate=0.3), seed=0)[:1400]  # in place of your own: oneof.read(...)
loader = DataLoader(TensorDataset(torch.arange(1400), x[:1400]), batch_size=64, shuffle=True)

set_seed(0)
accelerator = Accelerator()
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
criterion = oneof.CandidateLoss("proden", candidates).to(accelerator.device)
purifier = oneof.Purifier(oneof.Pop(warm_up=5), criterion)
accelerator.register_for_checkpointing(criterion, purifier)  # for save_state and load_state

for _ in range(20):
    for index, inputs in loader:
        with accelerator.accumulate(net):
            loss = criterion(net(inputs), index)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    purifier.step()  # merges what the processes remember

accuracy = (net(x[1400:].to(accelerator.device)).argmax(1).cpu().numpy() == y[1400:]).mean()
size = criterion.candidates.sum(1).float().mean()
accelerator.print(f"accuracy {accuracy:.3f}, labels per set {size:.2f}")
