"""POP in skorch, a network as a scikit-learn estimator: y is the row number, and a callback purifies."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from skorch import NeuralNet
from skorch.callbacks import Callback
from torch import nn

import oneof
from oneof.candidates.generate import Flip, generate


class Purify(Callback):
    def on_train_begin(self, net, **kwargs):
        net.purifier_ = oneof.Purifier(oneof.Pop(warm_up=5), net.criterion_)

    def on_epoch_end(self, net, **kwargs):
        net.purifier_.step()


x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32)
candidates = generate(y, 10, Flip(rate=0.3), seed=0)[:1400]  # in place of your own: oneof.read(...)

torch.manual_seed(0)
net = NeuralNet(
    nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)),
    criterion=oneof.CandidateLoss,
    criterion__method="proden",
    criterion__candidates=candidates,
    optimizer__momentum=0.9,
    lr=0.1,
    max_epochs=20,
    batch_size=64,
    iterator_train__shuffle=True,
    train_split=None,  # all rows train
    callbacks=[Purify()],
    verbose=0,
)
net.fit(x[:1400], np.arange(1400))
accuracy = (net.predict(x[1400:]).argmax(1) == y[1400:]).mean()
size = net.criterion_.candidates.sum(1).float().mean()
print(f"accuracy {accuracy:.3f}, labels per set {size:.2f}")
