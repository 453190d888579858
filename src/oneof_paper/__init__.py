"""What only the paper needs: printed numbers, experiments, tables, figures, statistics."""
