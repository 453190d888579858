"""Define PartialLabelClassifier, the scikit-learn estimator for tables."""

import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from oneof.data.components import MAX_COLUMNS, learn_sparse_components
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding, learn_encoding
from oneof.data.files.hugging_face import dataset_table, is_dataset
from oneof.data.roles import ColumnRoles
from oneof.data.table import Columns, read_columns, read_features
from oneof.ensemble.pipeline import fit
from oneof.ensemble.records import FitResult
from oneof.estimator.arguments import check_positive_int, choose_dtype, is_frame, seed_from, single_torch_thread
from oneof.estimator.base import BasePartialLabelClassifier
from oneof.learners.base import Resources
from oneof.learners.config import EnsembleConfig, FitConfig, get_instance, make_ensemble_config
from oneof.methods import Method
from oneof.purify import PURIFY, Purify
from oneof.training.parallel import resolve_n_jobs

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class PartialLabelClassifier(BasePartialLabelClassifier):
    """Classifier for rows that each have a set of candidate labels, one of which is right.

    An ensemble of networks, linear models, trees and a kernel method is trained on the sets. Each is weighted by how well it predicts
    held-out sets. No true label is used. Besides a classifier for new rows, `fit` gives the most probable label of every training
    row (`transduction_`).

    Parameters
    ----------
    method : str, Method or None, default=None
        The loss that networks are trained with: a key of `oneof.METHODS`, or an instance. None: BalancedProden().
    purify : str, Pop, PopPrinted, PopRatio, PopReleased or None, default="pop"
        The rule by which candidates that the networks find improbable are removed during training. None: they are not.
    prepurify : bool, default=True
        Remove candidates that are improbable by similar rows before any network is trained.
    hidden_layer_sizes : tuple of int or None, default=None
        Widths of the networks' hidden layers; () for a linear model. None: two of 128.
    scaling : {"feature", "global", "root", "minmax", "none", "ranks", "both"} or None, default=None
        Scaling of the features, fitted on training rows. "global" keeps the ratio of their scales, as for principal components;
        "ranks" suits skewed ones. None: chosen on held-out sets.
    lr, weight_decay : float or None, default=None
        Learning rate and weight decay of the networks. None: 0.3 and 0.0003.
    n_estimators : int, default=5
        Number of networks in the ensemble, and of linear models; they train together.
    learners : tuple, list or None, default=None
        Learners to combine: any of "networks", "linear", "trees" (trained on the most probable labels by the others), "set_trees" and
        "boosting" (on the sets), "kernel", and classifiers with scikit-learn's `fit` and `predict_proba`, pipelines included. A classifier is fitted on the
        most probable label of each row as a whole number, with its probability as `sample_weight`; one that takes no weights is fitted
        on rows drawn with that probability. `save` writes classifiers that consist of scikit-learn's own types, if skops is installed.
        None: all six, boosting from 1,000 rows on. A learner that does not help on held-out sets gets weight 0.
    quick : bool, default=False
        Give a first answer in a second or two: the kernel and 100 trees, no network.
    epochs, batch_size : int or None, default=None
        Epochs and batch size of the networks. None: by the number of rows.
    mixup : float, default=1.0
        Strength of mixup in training, 0 for none (see `oneof.Training`).
    noise : float, default=0.0
        Standard deviation of the noise that is added to features in training (see `oneof.Training`).
    criterion : str, default="both"
        Score on held-out sets by which settings are chosen: a key of `oneof.metrics.CRITERIA` or `oneof.metrics.MEANS`.
    classes : sequence, default=None
        All labels, when some may be absent from y; for a mask, the names of its columns.
    random_state : int, RandomState or None, default=None
        Seed of everything that is drawn. `oneof fit --seed` with the same whole number gives the same result.
    n_jobs : int or None, default=None
        Worker processes of joblib that fit networks, kernels and trees, each with one thread; -1: all processors. The result is the same
        for any number. Starting them takes some seconds. None: this process, or those that torchrun or SLURM started.
    device : str, default="auto"
        Where to train: "cpu" or "cuda", the same up to rounding. "auto": the GPU, if there is one, from 20,000 rows on. Trees grow on
        the CPU, and predictions are made there.
    verbose : bool, default=False
        Show progress: a bar in a terminal, lines elsewhere.

    Attributes
    ----------
    classes_ : array [c]
        The labels.
    columns_ : dict
        How each column of a frame is used, and why: `{"hue": {"use": "category", "reason": "text with 3 values"}}`. Empty for arrays.
    candidates_ : bool array [n, c]
        The purified sets: a label is removed when every network that trained on the row removed it.
    transduction_ : array [n]
        The label of each training row: the most probable one in its purified set.
    label_distributions_ : array [n, c]
        Probability of each label of each training row if its set holds the true label, 0 outside of the set, by the models that were
        not trained on the row (by all, where all were).
    label_probability_ : array [n]
        Probability that `transduction_` is right: its share of `label_distributions_`, times the probability that the set holds the true
        label.
    accuracy_ : oneof.ensemble.accuracy.AccuracyEstimate
        What is known about the accuracy on new rows: an interval, a bound, or that nothing was learned; and the reason.
    annotators_ : list of dict
        How many votes each annotator gave (`votes`) and how often they seem to be right (`accuracy`); empty without votes.
    model_ : oneof.ensemble.model.Model
        The ensemble, which predicts.
    result_ : oneof.ensemble.records.FitResult
        What `save` writes: the model, the table of `oneof clean`, the settings that were tried and their scores.
    history_ : dict of arrays [epochs, networks and linear models]
        Loss, set size and scores on held-out sets after each epoch.
    n_iter_ : int
        Epochs that the networks were trained for.
    n_features_in_ : int
        Number of features, or of columns of a frame.
    feature_names_in_ : array [n_features_in_]
        Names of the columns; only if X was a frame.
    run_ : oneof.runs.folder.Run
        The folder that `from_run` opened; only there.

    See Also
    --------
    PartialLabelImageClassifier : The same for pictures.
    oneof.fit : Networks alone, with every setting of the training loop.

    Examples
    --------
    >>> from oneof import PartialLabelClassifier
    >>> X = [[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]] * 5
    >>> y = [{"low"}, {"low", "high"}, {"low", "high"}, {"high"}, {"high", "low"}, {"high"}] * 5
    >>> clf = PartialLabelClassifier(random_state=0).fit(X, y)
    >>> clf.predict([[0.05], [1.15]])
    array(['low', 'high'], dtype='<U4')
    >>> clf.transduction_[:6]
    array(['low', 'low', 'low', 'high', 'high', 'high'], dtype='<U4')
    """

    method: str | Method | None = None
    purify: str | Purify | None = "pop"
    prepurify: bool = True
    hidden_layer_sizes: tuple[int, ...] | None = None
    scaling: str | None = None
    lr: float | None = None
    weight_decay: float | None = None
    n_estimators: int = EnsembleConfig.n_networks
    learners: Any = None
    quick: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    mixup: float = EnsembleConfig.mixup
    noise: float = EnsembleConfig.noise
    criterion: str = "both"
    classes: Any = None
    random_state: Any = None
    n_jobs: int | None = None
    device: str = "auto"
    verbose: bool = False

    def _encode_training_rows(self, X: Any) -> tuple[NDArray[Any], Encoding, NDArray[np.bool_] | None]:
        if is_dataset(X):
            X = dataset_table(X)
        if is_frame(X):
            validate_data(self, X, skip_check_array=True)  # sets the names of the columns
            self._dtype: type = np.float32
            columns, roles, uses = read_features(X)
            self.columns_ = {name: asdict(use) for name, use in uses.items()}
        else:
            X = validate_data(self, X, dtype=[np.float64, np.float32], accept_sparse="csr")
            names = [f"x{j}" for j in range(X.shape[1])]
            self.columns_ = {}
            if issparse(X):
                if X.shape[1] > MAX_COLUMNS:
                    return self._encode_wide_sparse_rows(X, names)
                X = X.toarray()
            self._dtype = choose_dtype(X)
            columns = Columns("X", X.astype(self._dtype), names, {})
            roles = ColumnRoles(features=tuple(names), candidates=None)
        encoding = learn_encoding(columns, roles)
        return encoding.transform(columns), encoding, None

    def _encode_wide_sparse_rows(self, X: Any, names: list[str]) -> tuple[NDArray[Any], Encoding, None]:
        """Return the components of a sparse matrix that would take too much memory and time as an array."""
        self._dtype = np.float32
        components = learn_sparse_components(X)
        fills = (0.0,) * len(names)
        encoding = Encoding(tuple(names), fills, gaps=(), categories={}, embedded=(), components=components)
        return components(X), encoding, None

    def _encode_new_rows(self, X: Any) -> NDArray[Any]:
        encoding = self.model_.encoding
        from_folder = hasattr(self, "run_")
        has_names = from_folder or hasattr(self, "feature_names_in_")
        if is_dataset(X):
            X = dataset_table(X)
        if is_frame(X) and has_names:
            if not from_folder:
                validate_data(self, X, reset=False, skip_check_array=True)
            columns = read_columns(X, encoding.roles)
            for message in encoding.unseen(columns):
                _log.warning(message, stacklevel=3)
            return encoding.transform(columns)
        X = validate_data(self, X, dtype=[np.float64, np.float32], accept_sparse="csr", reset=False)
        if X.shape[1] != encoding.n_inputs:
            raise ValueError(
                f"X must be a frame with the columns of the training table; got an array of {X.shape[1]} numbers per row, "
                f"from which {encoding.n_inputs} features were made."
            )
        if encoding.components is not None:
            n_numbers = len(encoding.components.axes)
            components = encoding.components(X[:, :n_numbers])
            others = X[:, n_numbers:]
            if issparse(others):
                others = others.toarray()
            return np.hstack([components, others], dtype=np.float32)
        if issparse(X):
            X = X.toarray()
        return np.asarray(X, dtype=self._dtype)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _train(self, data: Dataset, config: FitConfig) -> FitResult:
        resources = Resources(device=self.device, n_jobs=resolve_n_jobs(self.n_jobs))
        if self.verbose:
            resources = replace(resources, progress=type(self).__name__)
        with single_torch_thread():
            return fit(data, config, resources)

    def _config(self) -> FitConfig:
        """Return the settings of the fit; those that parameters leave open are chosen on held-out sets."""
        if self.n_estimators < 1:
            raise ValueError(f"n_estimators must be at least 1; got {self.n_estimators}.")
        network_settings = {
            "hidden": self.hidden_layer_sizes,
            "scaling": self.scaling,
            "lr": self.lr,
            "weight_decay": self.weight_decay,
            "mixup": self.mixup,
        }
        purify = None
        if self.purify is not None:
            purify = get_instance(self.purify, PURIFY, Purify, "purify")
        kernel = None
        if self.prepurify:
            kernel = EnsembleConfig.kernel
        ensemble = make_ensemble_config(
            network_settings,
            self.method,
            purify,
            self.learners,
            self.quick,
            n_networks=self.n_estimators,
            noise=self.noise,
            epochs=check_positive_int(self.epochs, "epochs"),
            batch_size=check_positive_int(self.batch_size, "batch_size"),
            kernel=kernel,
        )
        return FitConfig(ensemble, criterion=self.criterion, seed=seed_from(self.random_state))
