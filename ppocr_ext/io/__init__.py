"""Files: atomic writes, plain pickles, sizes of images, and the files of this package."""
