"""The experiment core: knows no backend, data set or plot."""
