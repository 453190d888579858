"""Candidate sets: the mask (`mask`), how it is read (`read`, `cells`), how it is made to try methods on (`generate`)."""
