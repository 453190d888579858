"""What learns from candidate sets: kernel regression, networks, trees, classifiers of scikit-learn, networks on pictures."""
