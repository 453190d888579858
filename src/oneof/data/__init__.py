"""Data in: people's tables (`table`), files of every form (`files`), the paper's sets by name (`named`), and columns as numbers (`encode`)."""
