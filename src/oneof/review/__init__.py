"""A person and the model take turns: what was decided, what is asked next, and the page that asks."""
