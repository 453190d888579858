"""`oneof paper theory`: the paper's theorems on distributions whose posterior is known."""

import typer


def theory() -> None:
    """Do the paper's theorems hold? What they assume and promise beside what is seen, where the posterior is known; about a minute."""
    import torch

    from oneof_paper.theory import rows, table

    torch.set_num_threads(1)  # its tensors are small: several threads mostly wait for one another
    typer.echo(table(rows()))
