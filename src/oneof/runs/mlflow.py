"""Store a run as an MLflow model, which can be logged, registered, loaded as a pyfunc and served.

    from oneof.runs.mlflow import log_model

    with mlflow.start_run():
        info = log_model("RUN")
    mlflow.pyfunc.load_model(info.model_uri).predict(frame)

MLflow calls `_load_pyfunc` of this module, so that the model is a copy of the run's files, without a pickle.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from oneof.runs.folder import Run
from oneof.runs.model_card import write_model_files
from oneof.runs.predictor import Predictor
from oneof.storage.optional_packages import load_package
from oneof.version import __version__

_PURPOSE = "an MLflow model"
_EXTRA = "mlflow"
_FOLDER = "run"  # with the run's files, inside an MLflow model


class PyfuncModel:
    """Predict the rows of data frames, as MLflow calls it."""

    def __init__(self, folder: str | Path) -> None:
        self._predictors = {}
        for distribution in (False, True):
            self._predictors[distribution] = Predictor(folder, distribution=distribution)

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Return label and probability of every row; with the parameter `distribution`, the probability of every label too."""
        distribution = bool((params or {}).get("distribution", False))
        return self._predictors[distribution](model_input)


def _load_pyfunc(path: str) -> PyfuncModel:
    """Open the model; MLflow looks for a function of this name."""
    return PyfuncModel(path)


def save_model(run: str | Path | Run, path: str | Path, **options: Any) -> None:
    """Write a run as a new folder in the format of MLflow, for `mlflow models serve -m FOLDER`.

    Parameters
    ----------
    run
        A run, or the folder that `oneof fit` wrote. Its training rows are not copied.
    path
        The folder to write.
    options
        Further arguments of `mlflow.pyfunc.save_model`.
    """
    pyfunc = load_package("mlflow", _PURPOSE, "pyfunc", extra=_EXTRA)
    path = Path(path)
    if path.exists():
        raise ValueError(f"the folder of a model must be new; {path} exists. Give another name.")
    with TemporaryDirectory() as temporary:
        pyfunc.save_model(path, **_arguments(run, Path(temporary), options))


def log_model(run: str | Path | Run, name: str = "model", **options: Any) -> Any:
    """Log a run as a model of the active MLflow run, and return MLflow's `ModelInfo`.

    Parameters
    ----------
    run
        A run, or the folder that `oneof fit` wrote. Its training rows are not copied.
    name
        Name of the logged model.
    options
        Further arguments of `mlflow.pyfunc.log_model`, such as `registered_model_name`.
    """
    pyfunc = load_package("mlflow", _PURPOSE, "pyfunc", extra=_EXTRA)
    with TemporaryDirectory() as temporary:
        return pyfunc.log_model(name=name, **_arguments(run, Path(temporary), options))


def _arguments(run: str | Path | Run, temporary: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of MLflow's functions; the files to store are written to a temporary folder."""
    if isinstance(run, Run):
        opened = run
    else:
        opened = Run.open(run)
    opened.model.check_predicts()
    folder = temporary / _FOLDER
    folder.mkdir()
    write_model_files(opened, folder)
    return {
        "loader_module": __name__,
        "data_path": str(folder),
        "signature": signature(opened),
        "pip_requirements": [f"oneof=={__version__}"],
        **options,
    }


def signature(run: Run) -> Any:
    """Return the columns that a run needs and those that it predicts as a `ModelSignature`.

    Texts and names of pictures are strings. Other columns may have any type, since MLflow would refuse whole numbers where it expects
    doubles. Every column is required, but cells may be missing.
    """
    types = load_package("mlflow.types.schema", _PURPOSE, extra=_EXTRA)
    model_signature = load_package("mlflow.models", _PURPOSE, "ModelSignature", extra=_EXTRA)
    roles = run.model.encoding.roles
    inputs = []
    for name in (*roles.features, *roles.categories):
        inputs.append(types.ColSpec(types.AnyType(), name))
    for name in (*roles.text, *roles.image):
        inputs.append(types.ColSpec("string", name))
    outputs = [types.ColSpec("string", "label"), types.ColSpec("float", "probability")]
    distribution = types.ParamSpec("distribution", "boolean", False)
    return model_signature(types.Schema(inputs), types.Schema(outputs), types.ParamSchema([distribution]))
