"""Pages about runs, and about the confusions of a recogniser."""
