"""Networks on pictures as a learner: PRODEN with POP late in the training, each network leaving out rows that it predicts afterwards."""

import math
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.augment.views import Pictures, views
from oneof.data.dataset import Dataset
from oneof.data.images import ImageSpec
from oneof.data.on_disk import OnDiskFeatures
from oneof.data.splits import split_rows
from oneof.learners.base import Context, FittedLearner, Targets
from oneof.learners.config import VIEWS, EnsembleConfig, ImageConfig
from oneof.learners.network_models import ImageNetworks, predict_held_out
from oneof.learners.networks import derive_seed
from oneof.methods import Proden
from oneof.networks.named import is_pretrained, network_to_train
from oneof.purify import Pop
from oneof.storage.durations import format_duration, format_limit
from oneof.storage.progress import announce
from oneof.training.fit import fit
from oneof.training.processes import current_group
from oneof.training.state import Fit
from oneof.training.threads import threads_for, torch_threads
from oneof.training.trials import Training, Trial

LR = 0.05  # this and the next two: of the paper, for images
WEIGHT_DECAY = 1e-3
BATCH_SIZE = 256
FINE_TUNING_LR = 0.01  # where the network is pretrained: a larger rate would undo that
MANY_IMAGES = 20_000  # above it one network that leaves out a tenth is trained
IMAGES_ON_CPU = 30_000  # that a CPU shows each network in all, about: some minutes
TIMED_BATCHES = 4  # of each network, by which the time of an epoch is estimated
SHARE_OF_TIME = 0.8  # of what is left, for training; the rest is for resolving labels
LONG = 60.0  # seconds of training that are announced, on a CPU
STATISTICS_SAMPLE = 5000  # pictures from which mean and deviation of the channels are estimated


class ImagePlan(NamedTuple):
    """Settings of the networks on pictures, in numbers; as they stand in run.json."""

    network: str
    views: str
    networks: int
    parts: int  # number of folds, each left out by other networks
    epochs: int
    batch: int
    lr: float = LR
    weight_decay: float = WEIGHT_DECAY
    pretrained: bool = False  # whether the network starts from pretrained weights


def plan_images(
    images: ImageConfig, ensemble: EnsembleConfig, n: int, image_spec: ImageSpec, device: torch.device
) -> ImagePlan:
    """Return settings for n pictures on a device: the paper's numbers on a GPU, what ends in minutes on a CPU."""
    on_gpu = device.type == "cuda"
    is_small = image_spec.channels == 1 and image_spec.side <= 32
    n_networks = images.n_networks
    if not n_networks:
        n_networks = 1 if n > MANY_IMAGES else 3
    n_folds = 10
    if n_networks > 1:
        n_folds = max(n_networks, 3)
    n_trained = max(1, n - n // n_folds)
    largest_batch = int(np.clip(n_trained // 20, 16, BATCH_SIZE))
    batch_size = BATCH_SIZE
    if largest_batch < BATCH_SIZE or n_trained % BATCH_SIZE == 1:
        n_batches = math.ceil(n_trained / largest_batch)
        batch_size = math.ceil(n_trained / n_batches)  # no last batch of a few rows
    network = images.network
    if network is None:
        network = "lenet"
        if on_gpu and not is_small:
            network = "wrn"
    epochs = ensemble.epochs
    if epochs is None:
        epochs = int(np.clip(IMAGES_ON_CPU // n, 5, 60))
        if on_gpu:
            epochs = 100
    pretrained = is_pretrained(network_to_train(network))
    lr = LR
    if pretrained:
        lr = FINE_TUNING_LR
    return ImagePlan(network, images.views, n_networks, n_folds, epochs, batch_size, lr, pretrained=pretrained)


@dataclass(frozen=True)
class ImageLearner:
    """Trains networks on pictures; rows that could not be read are not trained on."""

    plan: ImagePlan

    def fit(self, data: Dataset, targets: Targets, context: Context) -> FittedLearner:
        """Train on the sets of the targets. Pixels that lie in a file stay there, and batches are read from it."""
        rows = np.flatnonzero(data.observed)
        trained = self._train(data, targets, self._trials(data, rows, context), context)
        networks = ImageNetworks.from_fit(trained)
        oof = predict_held_out(networks, data.features, data.candidates.mask, trained.rows)
        return FittedLearner("networks", networks, oof, n_models=networks.stack.t, training=trained)

    def seconds_per_epoch(self, data: Dataset, targets: Targets, context: Context) -> float:
        """Return about how long an epoch of all networks takes, by training them on a few batches.

        The first epoch also compiles and starts threads, so that the difference between two epochs and one is taken.
        """
        rows = np.flatnonzero(data.observed)
        n_trained = len(rows) - len(rows) // self.plan.parts
        n_timed = min(n_trained, self.plan.batch * TIMED_BATCHES)
        trials = []
        for trial in self._trials(data, rows, context):
            trials.append(replace(trial, rows=rows[:n_timed], held_out=None, start=None))
        resources = replace(context.resources, checkpoint=None, progress=None)
        seconds = []
        for epochs in (1, 2):
            begin = time.monotonic()
            timed = replace(self, plan=self.plan._replace(epochs=epochs))
            timed._train(data, targets, trials, context._replace(resources=resources))
            seconds.append(time.monotonic() - begin)
        return max(seconds[1] - seconds[0], 1e-3) * n_trained / n_timed

    def _train(self, data: Dataset, targets: Targets, trials: list[Trial], context: Context) -> Fit:
        """Train the networks of some trials."""
        plan = self.plan
        ensemble = context.config.ensemble
        resources = context.resources
        device = torch.device(resources.device)
        pixels = data.encoding.pixels[0]
        images = data.features.reshape(-1, *pixels.shape)
        rows = np.flatnonzero(data.observed)
        dtype = torch.float32
        if device.type == "cuda":
            dtype = torch.bfloat16
        pictures = Pictures(pixels.side, *_channel_statistics(images, rows))
        recipe = views(VIEWS[plan.views], pictures, device=device, dtype=dtype)
        method = ensemble.method
        if method == EnsembleConfig.method:  # the default of tables is BalancedProden; pictures use the paper's PRODEN
            method = Proden()
        # The schedule of the config is for tables; only whether to purify is taken from it.
        purify = None
        if ensemble.purify is not None:
            purify = late_pop_schedule(plan.epochs)
        source: Any = images
        if isinstance(data.features, np.memmap):
            source = OnDiskFeatures(str(data.features.filename))
        step_cells = plan.batch * recipe.count * math.prod(pixels.shape)
        with torch_threads(resources.threads or threads_for(step_cells)):
            return fit(
                source,
                targets.sets,
                trials=trials,
                method=method,
                purify=purify,
                network=network_to_train(plan.network),
                training=Training(plan.epochs, plan.batch),
                views=recipe,
                prior=data.prior if data.has_prior else None,
                device=device,
                n_jobs=resources.n_jobs,
                progress=resources.progress,
                checkpoint=resources.checkpoint_of("pictures"),
            )

    def _trials(self, data: Dataset, rows: NDArray[np.intp], context: Context) -> list[Trial]:
        plan = self.plan
        seed = context.config.seed
        splits = split_rows(rows, plan.parts, data.groups, seed + 1)
        start_weights = [*context.warm_start.weights.get((), []), *[None] * plan.networks]
        trials = []
        for i in range(plan.networks):
            training_rows, held_out_rows = splits[i % len(splits)]
            trial = Trial(
                seed=derive_seed(seed, i),
                rows=training_rows,
                held_out=held_out_rows,
                lr=plan.lr,
                weight_decay=plan.weight_decay,
                start=start_weights[i],
            )
            trials.append(trial)
        return trials


def plan_for_time(
    learner: ImageLearner, data: Dataset, targets: Targets, context: Context
) -> tuple[ImageLearner, list[str]]:
    """Return the learner with as many epochs as fit in the time that is left, and what to tell about it.

    The time of an epoch is measured where there is a limit, and on a CPU, where training may take an hour: how long it will take is
    announced before it begins.
    """
    plan = learner.plan
    resources = context.resources
    on_cpu = torch.device(resources.device).type == "cpu"
    if resources.deadline is None and not (on_cpu and resources.progress):
        return learner, []
    seconds = learner.seconds_per_epoch(data, targets, context)
    epochs = plan.epochs
    if resources.deadline is not None:
        affordable = int(SHARE_OF_TIME * resources.seconds_left // seconds)
        epochs = int(np.clip(affordable, 1, plan.epochs))
    epochs = current_group(resources.n_jobs).broadcast_int(epochs)  # every process trains as long
    if resources.progress and epochs * seconds >= LONG:
        expected = f"networks on pixels: {plan.networks}, epochs: {epochs}"
        remedy = ""
        if resources.deadline is None:
            remedy = f"; --time-limit {format_limit(epochs * seconds / 2)} for less"
        announce(f"{expected}; about {format_duration(epochs * seconds)}{remedy}")
    warnings = []
    if epochs < plan.epochs:
        warnings.append(f"--time-limit: networks had {epochs} of {plan.epochs} epochs.")
    return replace(learner, plan=plan._replace(epochs=epochs)), warnings


def late_pop_schedule(epochs: int) -> Pop:
    """Return POP in the last fifth of the training, when networks remove few true labels."""
    interval = max(1, epochs // 20)
    warm_up = round(0.8 * epochs)
    n_rounds = len(range(warm_up, epochs, interval))
    step = 0.85 / max(1, round(0.8 * (n_rounds - 1)))
    return Pop(warm_up=warm_up, interval=interval, window=interval, every_round=True, e0=0.95, e_end=0.1, e_s=step)


def _channel_statistics(
    images: NDArray[np.uint8], rows: NDArray[np.intp]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel, from a sample of the rows."""
    step = max(1, len(rows) // STATISTICS_SAMPLE)
    sample: Any = images[rows[::step]] / np.float32(255)
    mean = sample.mean((0, 2, 3))
    deviation = np.maximum(sample.std((0, 2, 3)), 0.01)
    return tuple(mean.tolist()), tuple(deviation.tolist())
