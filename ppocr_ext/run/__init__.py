"""A run and how it is built: data, loaders, device, precision, processes."""
