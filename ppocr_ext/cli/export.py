"""``ppocr-ext export``: write an inference model for each client."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.charset import Charset, characters_in
from ppocr_ext.cli.options import (
    add_data_dir_argument,
    add_old_dictionary_argument,
    add_run_argument,
    read_recogniser_config,
)
from ppocr_ext.errors import DataError
from ppocr_ext.inference.formats import FORMATS
from ppocr_ext.messages import command_line

if TYPE_CHECKING:
    from ppocr_ext.config import Config
    from ppocr_ext.export.exporter import ExportedModel

EPILOG = """\
examples:
  ppocr-ext export output/run                         # the best checkpoint of a run, to output/run/inference
  ppocr-ext export output/run --output model
  ppocr-ext export -c config.yml -o Global.pretrained_model=output/run/latest --format onnx
  ppocr-ext export output/run --characters 0-9A-Z --data val_list.txt     # read only these characters

One folder is written: inference.json and inference.pdiparams (Paddle), inference.onnx, inference.yml (PaddleOCR 3.x),
charset.txt, model.json, and a model card with the lines of code for each client. Of a distillation, only the student
is exported. Before the folder appears, each form is run on a few images and must give the probabilities of the
trained network. Nothing is downloaded. See docs/deploy.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add_run_argument(parser)
    add("--model", metavar="NAME", help="sub-model to export (default: Metric.key, or Student)")
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="(default: Global.save_inference_dir, or the folder `inference` of the run)",
    )
    add("--format", choices=(*reversed(FORMATS), "both"), default="both", help="(default: both)")
    add(
        "--width",
        type=_width,
        metavar="dynamic|N",
        help="widths that the graph takes: all that the network takes, or only N pixels (default: dynamic)",
    )
    add("--model-name", metavar="NAME", help="name for PaddleOCR 3.x (default: by the backbone)")
    add(
        "--data",
        type=Path,
        metavar="LIST",
        help="with --characters or --dict: label file to read before and after",
    )
    add_data_dir_argument(parser)
    add("--force", action="store_true", help="replace what an export has written into the folder")
    add_old_dictionary_argument(parser)
    fewer = parser.add_mutually_exclusive_group()
    fewer.add_argument(
        "--characters",
        metavar="TEXT",
        help="read only these, such as 0-9A-Z: the classifier keeps their rows alone, nothing is trained",
    )
    fewer.add_argument(
        "--dict", type=Path, metavar="FILE", help="the same for the characters of a dictionary"
    )


def _width(text: str) -> int | None:
    if text == "dynamic":
        return None
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is neither dynamic nor a number of pixels")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.export.exporter import export_trained
    from ppocr_ext.run.logs import set_up_logs

    set_up_logs(args.host)
    config = _config(args)
    old_dictionary = args.old_dict
    if args.characters or args.dict:
        from ppocr_ext.export.fewer_characters import compare_readings, with_characters

        chosen = (
            characters_in(args.characters) if args.characters else Charset.from_file(args.dict).characters
        )
        whole = config
        config, old_dictionary = with_characters(config, chosen, args.host, args.old_dict)
        if args.data is not None:
            given = {"model": args.model, "host_path": args.host}
            for line in compare_readings(
                whole, config, args.old_dict, old_dictionary, args.data, args.data_dir, given
            ):
                print(line)
    elif args.data is not None:
        raise DataError(
            "--data needs --characters or --dict. Fix: to see what the exported model reads, use `ppocr-ext predict "
            "DIR LIST`.",
            code="bad_arguments",
        )
    exported = export_trained(
        config,
        args.output or _folder(args, config),
        format=args.format,
        width=args.width,
        model_name=args.model_name,
        force=args.force,
        host_path=args.host,
        model=args.model,
        old_dictionary=old_dictionary,
    )
    _print(exported)
    return 0


def _config(args: argparse.Namespace) -> Config:
    """Return the config of the run, or of ``-c``; that of the network of a released model, with its dictionary."""
    from ppocr_ext.checkpoint.weight_sources import ReleasedSource, find_source
    from ppocr_ext.config import load
    from ppocr_ext.first_run.bases import open_base
    from ppocr_ext.io.atomic import scratch_folder, write_text
    from ppocr_ext.text_direction import client_direction

    source = find_source(args.run_folder or "")
    if not isinstance(source, ReleasedSource):
        return read_recogniser_config(args)
    folder = scratch_folder()
    write_text(folder / "dict.txt", "\n".join(source.model.characters or ()))
    values = {
        "Global.character_dict_path": str(folder / "dict.txt"),
        "Global.use_space_char": source.charset().use_space,
        # a folder of its name would hide the model
        "Global.save_inference_dir": f"{Path(args.run_folder).stem}_inference",
        "Global.text_direction": client_direction(source.model.name),
    }
    write_text(folder / "config.yml", open_base(args.run_folder, Path()).config.with_values(values).to_yaml())
    return load([folder / "config.yml"], args.opt)


def _folder(args: argparse.Namespace, config: Config) -> Path:
    """Return the folder to write to without ``--output``."""
    from ppocr_ext.run.host_config import folder_of

    if config.settings.save_inference_dir:
        return Path(config.settings.save_inference_dir)
    run_folder = Path(args.run_folder) if args.run_folder else folder_of(config)
    return (run_folder.parent if run_folder.is_file() else run_folder) / "inference"


def _print(exported: ExportedModel) -> None:
    """Print what was written, how it was checked, and how to read an image with it."""
    from ppocr_ext.export.clients import shell_command, width_warning
    from ppocr_ext.inference.runners import GRAPH

    description = exported.description
    print(f"written: {exported.folder}")
    for name, size in exported.sizes.items():
        print(f"  {name:<20} {size:>12,} bytes")
    for comparison in description.comparisons:
        print(f"equal to the network: {comparison}")
    print(f"\n{width_warning(description.policy)}")
    engine = None if GRAPH in exported.sizes else "onnxruntime"
    command = shell_command(exported.folder, description.model_name, description.policy, engine)
    print(f"\nread an image with PaddleOCR 3.7:\n  {command}")
    print(f"here: {command_line('predict', exported.folder, 'IMAGE')}")
    print(f"lines for other clients: {exported.folder / 'README.md'}")
