"""Candidate sets: the mask (`mask`), reading it (`read`, `cells`), and generating it to evaluate methods (`generate`)."""
