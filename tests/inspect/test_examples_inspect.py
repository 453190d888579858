"""Small examples of the functions of this package, which pytest runs."""


def example_of_find_feature_issues() -> None:
    """
    >>> import numpy as np
    >>> from oneof.candidates.mask import Candidates
    >>> from oneof.inspect.identify import find_feature_issues
    >>> sets = Candidates(np.array([[1, 0], [0, 1], [1, 1]], dtype=bool), np.array(["a", "b"]))
    >>> find_feature_issues(np.array([[1.0, 5.0], [1.0, 5.0], [np.nan, 5.0]]), sets, ["p", "q"])
    FeatureIssues(nonfinite=(NonFinite(column='p', rows=1, first=2),), constant=('q',), duplicates=1, conflicts=((0, 1),))
    """


def example_of_count() -> None:
    """
    >>> import numpy as np
    >>> from oneof.candidates.mask import Candidates
    >>> from oneof.inspect.identify import count
    >>> counts = count(Candidates(np.array([[1, 1, 0], [1, 0, 0]], dtype=bool), np.array(["a", "b", "c"])))
    >>> counts.sizes, counts.singletons, counts.absent, counts.held
    ((0, 1, 1, 0), 1, ('c',), (2, 1, 0))
    """


def example_of_check_identifiability() -> None:
    r"""
    >>> import numpy as np
    >>> from oneof.candidates.mask import Candidates
    >>> from oneof.inspect.identify import check_identifiability
    >>> sets = Candidates(np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1]], dtype=bool), np.array(["a", "b", "c"]))
    >>> result = check_identifiability(sets)
    >>> result.groups, result.ambiguity
    ((('a', 'b'),), Ambiguity(degree=1.0, label='a', other='b'))
    """
