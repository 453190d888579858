"""Choose the sets that learners are trained on: without sets that seem to miss the true label, and on request with gold labels."""

import numpy as np

from oneof.data.dataset import BoolArray, Dataset, replace_by_gold
from oneof.ensemble.noisy_sets import find_noisy_sets
from oneof.learners.base import Context
from oneof.learners.kernel import KernelConfig, KernelScores


def choose_training_sets(data: Dataset, context: Context) -> tuple[BoolArray, KernelScores | None]:
    """Return the sets [n, c] to train on: all labels where a set seems to miss the true label; with train_on_gold, gold labels.

    The kernel scores by which noisy sets were found are returned too, or None if the kernel learner would compute other ones: it has
    other settings, leaves out groups, or is fitted on gold labels.
    """
    config = context.config
    sets = data.reviewed_sets
    kernel_scores = None
    if config.ensemble.kernel is not None and not data.has_prior:
        noisy = context.warm_start.noisy_sets
        if noisy is None:
            noisy, kernel_scores = find_noisy_sets(
                data.features,
                sets,
                max_rows=config.ensemble.max_kernel_rows,
                seed=config.seed,
                device=context.resources.device,
            )
        sets = np.asarray(sets | noisy[:, None])
        if config.ensemble.kernel != KernelConfig() or data.has_groups:
            kernel_scores = None
    if config.train_on_gold and data.has_gold:
        sets = replace_by_gold(sets, data.gold)
        kernel_scores = None
    return sets, kernel_scores
