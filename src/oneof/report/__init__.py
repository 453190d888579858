"""Render what a run learned as a page that people read."""
