"""From a table to a folder and what comes of it: labels, page, predictions, export."""
