"""POP in Lightning: the criterion is a part of the module, and is saved, moved and resumed with it."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

import oneof
from oneof.candidates.generate import Flip, generate
from oneof.metrics import covering_rate


class Digits(lightning.LightningModule):
    def __init__(self, candidates):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        self.criterion = oneof.CandidateLoss("proden", candidates)
        self.purifier = oneof.Purifier(oneof.Pop(warm_up=5), self.criterion)
        self.covering = MeanMetric()

    def training_step(self, batch, _):
        index, x = batch
        logits = self.net(x)
        self.covering.update(covering_rate(logits.detach(), self.criterion.candidates[index]), weight=len(x))
        self.log("covering", self.covering, on_step=False, on_epoch=True)
        return self.criterion(logits, index)

    def on_train_epoch_end(self):
        self.purifier.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def on_save_checkpoint(self, checkpoint):  # the criterion's state is in the module's
        checkpoint["purifier"] = self.purifier.state_dict()

    def on_load_checkpoint(self, checkpoint):
        self.purifier.load_state_dict(checkpoint["purifier"])


def main(epochs=20, resume_from=None, **options):
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x / 16, dtype=torch.float32)
    candidates = generate(y, 10, Flip(rate=0.3), seed=0)[:1400]  # in place of your own: oneof.read(...)
    loader = DataLoader(TensorDataset(torch.arange(1400), x[:1400]), batch_size=64, shuffle=True)
    lightning.seed_everything(0, verbose=False)
    model = Digits(candidates)
    trainer = lightning.Trainer(max_epochs=epochs, logger=False, enable_progress_bar=False, **options)
    trainer.fit(model, loader, ckpt_path=resume_from)
    accuracy = (model.net(x[1400:]).argmax(1).numpy() == y[1400:]).mean()
    size = model.criterion.candidates.sum(1).float().mean()
    print(
        f"accuracy {accuracy:.3f}, labels per set {size:.2f}, covering rate {trainer.callback_metrics['covering']:.3f}"
    )
    return trainer


if __name__ == "__main__":
    main()
