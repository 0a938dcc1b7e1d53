"""What all items share: the item itself, its data on disk, the run over items, verdicts, figures, the report."""
