"""Small examples of what the functions of this package do; pytest runs them as they stand."""


def example_of_grey() -> None:
    """
    >>> import torch
    >>> from oneof.data.augment.colour import grey
    >>> grey(torch.tensor([255.0, 0.0, 100.0]).view(1, 3, 1, 1)).item()
    88.0
    """


def example_of_crop() -> None:
    """
    >>> import torch
    >>> from oneof.data.augment.geometry import crop
    >>> image = torch.tensor([[[[1, 2, 3], [4, 5, 6]]]], dtype=torch.uint8)
    >>> crop(image, torch.tensor([True]), torch.tensor([1]), torch.tensor([2]), pad=1).tolist()
    [[[[2, 1, 2], [5, 4, 5]]]]
    """


def example_of_fixed_point() -> None:
    """
    >>> from oneof.data.augment.geometry import fixed_point
    >>> fixed_point((1, 0, 2, 0, 1, 0))
    (65536, 0, 163840, 0, 65536, 32768)
    """


def example_of_erase() -> None:
    """
    >>> import torch
    >>> from oneof.data.augment.geometry import erase
    >>> ones, two = torch.ones(1, 1, 2, 3, dtype=torch.uint8), torch.tensor([2])
    >>> erase(ones, (two - 1, two), (two - 2, two), torch.zeros(1, dtype=torch.uint8)).tolist()
    [[[[1, 1, 1], [0, 0, 1]]]]
    """


def example_of_operate() -> None:
    """
    >>> import torch
    >>> from oneof.data.augment.policies import OPERATIONS, operate, table
    >>> black = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    >>> operate(black, table([OPERATIONS["invert"](0, 4)]), fill=0).unique().item()
    255
    """


def example_of_magnitude() -> None:
    """
    >>> from oneof.data.augment.policies import magnitude
    >>> magnitude("rotate", 9, -1), magnitude("brightness", 9, 1), magnitude("posterize", 9, 1)
    (-30.0, 1.9, 4)
    """


def example_of_autoaugment() -> None:
    """
    >>> import torch
    >>> from oneof.data.augment.policies import autoaugment
    >>> autoaugment(32).draw(4, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 4])
    """


def example_of_randaugment() -> None:
    """
    >>> import torch
    >>> from oneof.data.augment.policies import randaugment
    >>> randaugment(32).draw(4, torch.Generator().manual_seed(0)).shape
    torch.Size([3, 4])
    """


def example_of_embedded() -> None:
    """
    >>> import numpy as np
    >>> from oneof.data.embed import Embedder, embed_values
    >>> from pathlib import Path
    >>> import tempfile
    >>> lengths = Embedder("text", "length", lambda texts: np.array([[len(text)] for text in texts], dtype=np.float32))
    >>> embed_values(["a", None, "abc", "a"], lengths, Path(), Path(tempfile.mkdtemp())).ravel().tolist()
    [1.0, 0.0, 3.0, 1.0]
    """


def example_of_learn_encoding() -> None:
    """
    >>> import numpy as np
    >>> from oneof.data.table import Columns
    >>> from oneof.data.roles import ColumnRoles
    >>> from oneof.data.encode import learn_encoding
    >>> columns = Columns("the table", np.array([[1], [3], [np.nan]], np.float32), ["size"], {"hue": ["red", "blue", "red"]})
    >>> encoding = learn_encoding(columns, ColumnRoles(features=("size",), categories=("hue",)))
    >>> encoding.names
    ['size', 'size is missing', 'hue=blue', 'hue=red']
    >>> encoding.transform(columns).tolist()
    [[1.0, 0.0, 0.0, 1.0], [3.0, 0.0, 1.0, 0.0], [2.0, 1.0, 0.0, 1.0]]
    """


def example_of_numbers_rows() -> None:
    """
    >>> import numpy as np
    >>> from oneof.data.not_features import numbers_rows
    >>> numbers_rows("x", np.arange(7, 107, dtype=np.float32)), numbers_rows("age", np.arange(100, dtype=np.float32) ** 2)
    (True, False)
    >>> numbers_rows("user_id", np.arange(100, 0, -1, dtype=np.float32))
    True
    """


def example_of_learn_ranks() -> None:
    """
    >>> import numpy as np
    >>> from oneof.data.with_ranks import fit_quantiles
    >>> x = np.array([[1.0], [10.0], [100.0], [1000.0], [10000.0]])
    >>> fit_quantiles(x)(x)[:, 1].round(2)
    array([-2.5 , -0.67,  0.  ,  0.67,  2.5 ])
    """


def example_of_resolve_roles() -> None:
    """
    >>> from oneof.data.roles import ColumnRoles, resolve_roles
    >>> roles, left = resolve_roles({"size": "number", "hue": "text", "sets": "text"}, "t.csv", ColumnRoles(candidates="sets"))
    >>> roles.features, left
    (('size',), {'hue': 'text'})
    """


def example_of_learn_texts() -> None:
    """
    >>> from oneof.data.encode import learn_texts
    >>> texts = learn_texts("note", ["a red fox", "the red fox", None, "one blue whale", "a blue whale"], "t.csv")
    >>> [term for term in texts.terms if not term.startswith("#")]
    ['blue', 'blue whale', 'fox', 'red', 'red fox', 'whale']
    >>> texts.transform(["A RED fox!", None, "???"]).any(1).tolist()
    [True, False, False]
    """


def example_of_read_features() -> None:
    """
    >>> from oneof.data.table import read_features
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.5, None], "day": pd.to_datetime(["1970-01-02", None]), "hue": ["red", None]})
    >>> columns, roles, uses = read_features(frame)
    >>> columns.numbers.tolist(), roles.dates, roles.categories
    ([[1.5, 1.0], [nan, nan]], ('day',), ('hue',))
    >>> uses["hue"]
    ColumnUse(use='category', reason='text with 1 value; gaps are a value of their own')
    """


def example_of_split_rows() -> None:
    """
    >>> import numpy as np
    >>> from oneof.data.splits import split_rows
    >>> [(len(train), len(held)) for train, held in split_rows(np.arange(10), 3)]
    [(7, 3), (7, 3), (7, 3)]
    """
