"""An exponential average of the networks during training: a mean teacher (Tarvainen and Valpola, NIPS 2017).

    a  <-  d a + (1 - d) w        after every step, of weights and of the statistics of batch normalisation

While the learning rate is high, the average is far more accurate than the networks themselves. So it takes their place wherever
they predict: its posteriors become the weights of candidates, POP observes it, and it is evaluated and kept at the end.
"""

import torch
from torch import Tensor

from oneof.methods.base import first_output
from oneof.training.stack import Stack


def begin_average(stack: Stack) -> Stack:
    """Return the average before the first step: a copy of the networks."""
    return Stack(stack.modules(), stack.compile_batch)


def decay_at(largest: float, n_steps: int) -> float:
    """Return d after so many steps: never so large that the networks' first steps weigh on the average.

    >>> [round(decay_at(0.999, n_steps), 3) for n_steps in (0, 100, 1000, 100_000)]
    [0.1, 0.918, 0.991, 0.999]
    """
    return min(largest, (1 + n_steps) / (10 + n_steps))


def update_average(average: Stack, stack: Stack, decay: Tensor) -> None:
    """Let the average follow the networks by one step; decay 0-dim. Graphs may capture it."""
    targets = []
    sources = []
    followers = average.weights | average.buffers
    for name, tensor in (stack.weights | stack.buffers).items():
        if tensor.is_floating_point():
            targets.append(followers[name])
            sources.append(tensor)
        else:  # batch normalisation counts its batches
            followers[name].copy_(tensor)
    steps = torch._foreach_sub(sources, targets)
    torch._foreach_mul_(steps, 1 - decay)
    torch._foreach_add_(targets, steps)


def average_logits(average: Stack, x: Tensor) -> Tensor:
    """Return the logits [t, b, c] of the average for x [t, b, ...], in evaluation mode."""
    with average.eval_mode():
        return first_output(average(x))
