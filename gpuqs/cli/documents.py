"""The DATA of a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from gpuqs.forest import Forest
from gpuqs.readers import ColumnError, DocumentReader, OptionError, open_documents

#: What the command line calls options of `gpuqs.readers.open_documents`.
_SPELLED: Final = {"first_id": "--one-based", "header": "--header/--no-header", "label": "--label", "query": "--query"}


def open_data(path: Path, forest: Forest, categories: Sequence[str] = (), **reading: Any) -> DocumentReader:
    """Open documents; an option that does not apply to their format, or a missing column, is a wrong argument.

    ``categories``: the columns of categories that were named.
    """
    try:
        reader = open_documents(path, forest, **reading)
    except OptionError as error:
        spelled = _SPELLED[error.option]
        raise click.UsageError(f"{error.path} is read as {error.format}, which takes no {spelled}") from error
    except ColumnError as error:
        raise click.UsageError(str(error)) from error
    if categories and reader.format in ("npy", "svmlight"):
        raise click.UsageError(
            f"{path} is read as {reader.format}, which holds codes of categories; leave out --category"
        )
    return reader
