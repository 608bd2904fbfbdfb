"""From a folder of labelled images to a config that is ready to train.

Seven files tell how ``ppocr-ext init`` works, in this order:

1. ``cli/init.py`` calls the steps, and prints what they find.
2. ``sources/recognise.py`` tells which files hold labels, and turns what they say into samples.
3. ``sources/listing.py`` lists the folder, decodes its text files, and finds the image that a label file names.
4. ``first_run/inspect.py`` looks at the samples, splits them and chooses a base.
5. ``first_run/decisions.py`` decides each value of the config, with its reason.
6. ``first_run/writing.py`` writes the lists, the dictionary and the config.
7. ``first_run/trial.py`` tries the config: a step of training, an evaluation, doubtful labels.

Each other file is one detail: ``line_formats.py`` and ``page_formats.py`` read the formats, ``names.py`` knows the
words of file names, ``samples.py`` has the types, ``split.py`` divides the samples, ``bases.py`` opens what a run
begins with, and ``report.py`` makes the sentences and the page.
"""
