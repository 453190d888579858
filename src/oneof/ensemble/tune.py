"""Search settings of the networks with Optuna: poor settings are stopped early, and no trial is ever lost.

A setting is tried as a stack of networks, one per fold. The leave-one-out kernel, with the features scaled as in the setting, removes
labels from the sets that a network trains on. Its score is the mean of covering rate and approximated accuracy on the *original* sets of
its held-out rows, which are the same for every setting. No true label is used anywhere.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.dataset import UNKNOWN, Dataset
from oneof.data.splits import Split, split_rows
from oneof.ensemble.learner_stages import remove_dominated_labels
from oneof.learners.base import Context, Resources, WarmStart
from oneof.learners.config import FitConfig, NetworkConfig
from oneof.learners.kernel_ensemble import fit_kernels
from oneof.learners.networks import derive_seed, make_training, make_trial
from oneof.learners.scaling import SCALINGS_WITH_RANKS, append_ranks
from oneof.metrics import CRITERIA, with_means
from oneof.networks import MLP
from oneof.storage.optional_packages import load_package
from oneof.storage.regular import read_regular
from oneof.storage.rows import Row
from oneof.storage.settings import first_difference
from oneof.storage.strict_json import parse_json
from oneof.training.loop import begin, epochs
from oneof.training.stack import build
from oneof.training.training_data import make_training_data

MIN_ROWS = 200  # the held-out sets of fewer rows are too few to compare settings by
N_FOLDS = 3  # on which a setting is tried
TRIAL_EPOCHS = 15

RANGES: dict[str, Any] = {
    "hidden": ["", "64", "256", "1024", "256,256"],  # layers as text, which every storage holds
    "scaling": list(SCALINGS_WITH_RANKS),
    "lr": (0.01, 1.0),
    "weight_decay": (1e-5, 1e-2),
    "mixup": [0.0, 1.0],
}
"""What settings are drawn from: lists, or two ends between which the logarithm is drawn."""

FIRST = {"hidden": "256", "scaling": "feature", "lr": 0.1, "weight_decay": 1e-3, "mixup": 1.0}
"""The setting that is tried first, near the estimator's own: so the result is no worse by the score."""


class Folds(NamedTuple):
    """The rows that settings are tried on, and how they are split."""

    features: Any  # [n, 2d] with their ranks
    context: Context
    splits: list[Split]
    sets: Callable[[str], NDArray[np.bool_]]  # scaling -> [t, n, c]: purified, but for the rows that a fold holds out
    epochs: int


class Tuned(NamedTuple):
    """The best setting, as `EnsembleConfig.with_overrides` and `PartialLabelClassifier` take it, and how it was found."""

    setting: dict[str, Any]
    score: float
    tried: int
    stopped: int  # early


def make_folds(data: Dataset, config: FitConfig = FitConfig(), epochs: int = TRIAL_EPOCHS) -> Folds:  # noqa: B008 - frozen
    """Split the table, or a sample of a large one, into folds."""
    seed = config.seed
    ensemble = config.ensemble.for_size(len(data))
    sample = np.sort(np.random.default_rng(seed).permutation(len(data))[: ensemble.max_kernel_rows])
    splits = split_rows(np.arange(len(sample)), N_FOLDS, data.groups[sample], seed)
    if len(sample) < MIN_ROWS or splits[0][1] is None:
        raise ValueError(
            f"a search needs {MIN_ROWS} rows or more, and groups that can be held out; got {len(data)} rows. "
            "Use oneof fit."
        )
    sampled = data.take(sample)
    candidates = sampled.candidates.mask
    context = Context(
        config=replace(config, ensemble=ensemble),
        resources=Resources(device="cpu"),
        warm_start=WarmStart(),
        selection_gold=np.full(len(sample), UNKNOWN),
        evaluation_sets=candidates,
    )
    features = append_ranks(sampled.features, torch.device("cpu")).values
    return Folds(features, context, splits, cache(partial(_purified_sets, sampled, context, splits)), epochs)


def _purified_sets(data: Dataset, context: Context, splits: list[Split], scaling: str) -> NDArray[np.bool_]:
    """Return the sets [t, n, c] as the kernel purifies them; each fold has the original ones of its held-out rows."""
    original = data.candidates.mask
    kernels = fit_kernels(data, original, [scaling], context)
    kept, _ = remove_dominated_labels(original, kernels.soft_labels, context.config.ensemble.margin)
    sets = np.repeat(kept[None], len(splits), axis=0)
    for fold_sets, (_, held_out) in zip(sets, splits, strict=True):
        fold_sets[held_out] = original[held_out]
    return sets


def scores(folds: Folds, setting: Row) -> Iterator[float]:
    """Yield the score of a setting on held-out sets after every epoch; a network that diverged scores 0."""
    config = folds.context.config
    ensemble = replace(config.ensemble, mixup=setting["mixup"])
    network = NetworkConfig(tuple(setting["hidden"]), setting["scaling"], setting["lr"], setting["weight_decay"])
    trials = []
    for k, split in enumerate(folds.splits):
        trials.append(make_trial(network, derive_seed(config.seed, k), split))
    seeds = [trial.seed for trial in trials]
    centred = folds.features - np.median(folds.features, axis=0)  # rounding to single precision then loses least
    training = make_training(ensemble, folds.epochs, ensemble.batch_size or 50)
    problem = make_training_data(centred, folds.sets(network.scaling), trials, ensemble.method, None, training)
    stack = build(partial(problem.network, MLP(network.hidden)), seeds, torch.device("cpu"))
    for record in epochs(problem, begin(problem, stack, seeds)):
        means = {}
        for name in CRITERIA:
            if name in record:
                means[name] = float(record[name].double().nan_to_num(0.0).mean())
        yield with_means(means)[config.criterion]


# ------------------------------------------------------------------------------------------------------------- with Optuna


def search_settings(
    folds: Folds, trials: int, storage: str, spec: Row, *, echo: Callable[[str], None] = lambda line: None
) -> Tuned:
    """Try settings until there are so many in the storage, which must be of the same search (`spec`), and return the best.

    Every trial draws from a seed of its own and from what was finished before it, so a search that was killed and repeated tries
    what it would have tried. One process at a time.
    """
    optuna = load_optuna()
    study = open_study(optuna, storage, spec, folds.epochs)
    for number in range(len(finished_trials(study)), trials):
        trial, setting = ask_setting(optuna, study, folds.context.config.seed, number)
        value = _try(optuna, study, trial, scores(folds, setting))
        echo(describe_trial(number, trials, value, setting))
    return best_setting(study)


def ask_setting(optuna: Any, study: Any, seed: int, number: int) -> tuple[Any, Row]:
    """Return the next trial of a study and its setting, drawn from a seed of its own; the first one is given."""
    study.sampler = optuna.samplers.TPESampler(seed=derive_seed(seed, number))
    if number == 0:
        study.enqueue_trial(FIRST)
    trial = study.ask()
    sampled = {name: _suggest(trial, name, choices) for name, choices in RANGES.items()}
    return trial, _as_setting(sampled)


def best_setting(study: Any) -> Tuned:
    """Return the best setting of a study."""
    finished = finished_trials(study)
    stopped = sum(trial.state.name == "PRUNED" for trial in finished)
    best = study.best_trial
    return Tuned(_as_setting(best.params), float(best.value), len(finished), stopped)


def describe_trial(number: int, trials: int, value: float | None, setting: Row) -> str:
    """Return a line about a trial; a value of None: it was stopped early."""
    if value:
        return f"{number + 1}/{trials}: {value:.4f} {setting}"
    return f"{number + 1}/{trials}: stopped early"


def read_setting(path: Path) -> dict[str, Any]:
    """Read a setting that was written down as JSON."""
    content = read_regular(path)
    try:
        setting = parse_json(content)
    except ValueError as error:
        raise ValueError(
            f"settings must be a JSON file, as oneof tune writes it; {path} is not one ({error})."
        ) from error
    if not isinstance(setting, dict):
        raise ValueError(f"settings must be a JSON object, as oneof tune writes it; {path} holds {setting!r:.60}.")
    return setting


def load_optuna() -> Any:
    """Import Optuna, and keep it quiet."""
    optuna = load_package("optuna", "a search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(optuna: Any, storage: str, spec: Row, length: int) -> Any:
    """Open the study in the storage, new or begun; mark trials that a killed run has left behind as failed."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=length // 3)
    try:
        study = optuna.create_study(
            study_name="oneof", storage=storage, direction="maximize", pruner=pruner, load_if_exists=True
        )
    except Exception as error:  # SQLAlchemy's many; it is not ours to import
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"storage must be a database that Optuna can open, such as sqlite:///search.db; got {storage!r} ({reason})."
        ) from error
    difference = first_difference(study.user_attrs.get("asked", spec), spec)
    if difference:
        raise ValueError(f"{storage} holds another search: {difference}. Give another storage, or delete this one.")
    study.set_user_attr("asked", spec)
    for trial in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def finished_trials(study: Any) -> list[Any]:
    """Return the trials that ended, also those that were stopped early."""
    finished = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name in ("COMPLETE", "PRUNED"):
            finished.append(trial)
    return finished


def _suggest(trial: Any, name: str, choices: Any) -> Any:
    if isinstance(choices, list):
        return trial.suggest_categorical(name, choices)
    return trial.suggest_float(name, *choices, log=True)


def _as_setting(sampled: Row) -> Row:
    """Return what Optuna sampled as a setting: the hidden layers are a list there, and a text in Optuna."""
    widths = [int(width) for width in sampled["hidden"].split(",") if width]
    return {**sampled, "hidden": widths}


def _try(optuna: Any, study: Any, trial: Any, values: Iterator[float]) -> float | None:
    """Return the score after the last epoch; None if the trial was stopped, being below the median of those before it."""
    value = 0.0
    for epoch, value in enumerate(values, 1):
        trial.report(value, epoch)
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return None
    study.tell(trial, value)
    return value
