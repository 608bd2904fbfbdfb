"""A frozen network as a graph: written, converted, run by a library, compared with the network, kept in a folder."""
