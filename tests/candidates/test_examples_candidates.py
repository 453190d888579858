"""Small examples of what the functions of this package do; pytest runs them as they stand."""


def example_of_split_cells() -> None:
    """
    >>> from oneof.candidates.cells import split_cells
    >>> split_cells(["cat|dog", None, ["cat"], "['dog', 'fox']"], "|", "the table")
    [['cat', 'dog'], [], ['cat'], ['dog', 'fox']]
    """


def example_of_lookalikes() -> None:
    """
    >>> from oneof.candidates.cells import near_duplicate_labels
    >>> near_duplicate_labels(["cat", "Cat ", "dog", "caf\u00e9", "cafe\u0301", "do\u200bg"])
    [['cat', 'Cat '], ['dog', 'do\u200bg'], ['caf\u00e9', 'cafe\u0301']]
    """


def example_of_read_known() -> None:
    """
    >>> import numpy as np
    >>> from oneof.candidates.read import read_with_classes
    >>> read_with_classes([["cat", "yak"], ["yak"]], np.array(["cat", "dog"])).astype(int).tolist()
    [[1, 0], [0, 0]]
    """


def example_of_mask_and_classes() -> None:
    """
    >>> from oneof.candidates.read import mask_and_classes
    >>> mask_and_classes([["b"], ["a", "b"], []], None)[0].astype(int).tolist()
    [[0, 1], [1, 1], [0, 0]]
    """


def example_of_reach() -> None:
    """
    >>> import numpy as np
    >>> from oneof.candidates.generate import InstanceRate, calibrate_temperature
    >>> rng = np.random.default_rng(0)
    >>> logits, labels = 9 * rng.standard_normal((500, 10)), rng.integers(10, size=500)
    >>> kind = calibrate_temperature(InstanceRate(), 3.5, logits, labels)
    >>> round(float(kind.probabilities(logits, labels).sum(1).mean()), 3)
    3.5
    """


def example_of_statistics() -> None:
    """
    >>> import numpy as np
    >>> from oneof.candidates.mask import statistics
    >>> statistics(np.array([[1, 0, 0], [1, 1, 0]], dtype=bool))
    Statistics(rows=2, classes=3, average=1.5, largest=2, singletons=1, full=0, absent=1)
    """
