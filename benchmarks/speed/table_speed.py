"""Seconds per trial of Table 4: a cell of 120 trials as one stack, beside a plain PyTorch loop that trains one trial at a time.

    python benchmarks/speed/table_speed.py --data-dir DIR [--dataset lost] [--epochs 200]

Both train PRODEN with the table's linear model, batch and epochs on one thread, and look at held-out and test rows after every
epoch. The plain loop is what one would write: DataLoader, nn.Linear, torch.optim.SGD, a table of weights.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from oneof_paper.compute_rows import Cell, compute_rows, split
from oneof_paper.data.catalogue import Dataset, load
from oneof_paper.experiments import TABLES


def plain(data: Dataset, cell: Cell) -> float:
    """Train one trial; the accuracy on its test rows."""
    seed = cell.seeds[0]
    lr, decay, _ = cell.protocol.grid[-1]
    train, held_out, test = split(len(data.x), seed, cell.protocol)
    x = torch.as_tensor(data.x)
    x = (x - x[train].mean(0)) / x[train].std(0).clamp_min(1e-8)
    sets, labels = torch.as_tensor(data.candidates)[train], torch.as_tensor(data.labels)
    torch.manual_seed(seed)
    net = nn.Linear(x.shape[1], sets.shape[1])
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, weight_decay=decay)
    epochs = cell.protocol.training.epochs
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    weights = sets / sets.sum(1, keepdim=True)
    loader = DataLoader(TensorDataset(x[train], torch.arange(len(train))), cell.protocol.training.batch, shuffle=True)
    for _ in range(epochs):
        for features, rows in loader:
            logits = net(features)
            loss = -(weights[rows] * logits.log_softmax(1)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            posterior = logits.detach().softmax(1) * sets[rows]
            weights[rows] = posterior / posterior.sum(1, keepdim=True)
        schedule.step()
        with torch.no_grad():
            accuracies = [(net(x[part]).argmax(1) == labels[part]).float().mean().item() for part in (held_out, test)]
    return accuracies[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--dataset", default="lost")
    parser.add_argument("--epochs", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    table, data = TABLES[4], load(given.dataset, given.data_dir)
    protocol = table.protocol(given.dataset)
    protocol = replace(protocol, training=replace(protocol.training, epochs=given.epochs))
    cell = Cell(given.dataset, table.system("proden", given.dataset), protocol, tuple(range(10)))
    start = time.process_time()
    rows = compute_rows(cell, data)
    stacked = (time.process_time() - start) / len(cell.seeds) / len(protocol.grid)
    start = time.process_time()
    alone = plain(data, cell)
    one = time.process_time() - start
    oracle = np.mean([row["accuracy"] for row in rows if row.get("rule") == "oracle"])
    print(
        f"{given.dataset}, {given.epochs} epochs, processor seconds per trial: {stacked:.3f} in a stack of 120, {one:.3f} alone in a plain loop: {one / stacked:.1f} x"
    )
    print(f"(test accuracy: {100 * oracle:.1f} % by oracle over ten seeds, {100 * alone:.1f} % of the one plain trial)")


if __name__ == "__main__":
    main()
