"""Old names of modules, for one version."""
