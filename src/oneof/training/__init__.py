"""Training: `fit` is the border, `loop` the loop, `step` a step; `problem` is what stays, `state` what changes."""
