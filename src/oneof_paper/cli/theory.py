"""`oneof paper theory`: test the paper's theorems on distributions whose posterior is known."""

import typer


def theory() -> None:
    """Test the paper's theorems where the posterior is known: what they assume and promise beside what happens; about a minute."""
    import torch

    from oneof_paper.theory import rows, table

    torch.set_num_threads(1)  # its tensors are so small that further threads only wait
    typer.echo(table(rows()))
