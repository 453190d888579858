"""Small examples of what the functions of this package do; pytest runs them as they stand."""


def example_of_top_p_set() -> None:
    """
    >>> import numpy as np
    >>> from oneof.votes.policies import top_p_set
    >>> top_p_set(np.array([[0.7, 0.2, 0.1], [0.4, 0.2, 0.4]]), 0.3).astype(int)
    array([[1, 0, 0],
           [1, 0, 1]])
    """


def example_of_expand_labels() -> None:
    """
    >>> from oneof.votes.spelling import expand_labels
    >>> expand_labels([["cat"], ["dog"], ["not cat"], ["fox"], ["Unsure"]], [3, 2, 1, 1, 4], None, None)[0]
    [['cat'], ['dog'], ['dog', 'fox'], ['fox'], []]
    """


def example_of_taxonomy() -> None:
    """
    >>> from oneof.votes.spelling import Taxonomy
    >>> Taxonomy([("cat", "pet"), ("dog", "pet"), ("pet", "animal"), ("wolf", "animal")]).leaves("animal")
    ['cat', 'dog', 'wolf']
    """


def example_of_spelling() -> None:
    """
    >>> from oneof.votes.spelling import Spelling
    >>> list(Spelling(separator="|", synonyms={"kitty": "cat"}).reader()("kitty|dog"))
    ['cat', 'dog']
    >>> list(Spelling(normalise=True, classes=("Cat", "Dog")).reader()(" DOG"))
    ['Dog']
    """
