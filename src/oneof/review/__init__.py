"""Review labels in a browser or in Label Studio: the rows to show, the decisions of people, and the accuracy that they measure."""
