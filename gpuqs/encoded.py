"""EncodedDocuments: returned by `Model.encode`, and accepted by `Model.predict` any number of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from gpuqs.programs import Programs


@dataclass(frozen=True)
class EncodedDocuments:
    """Documents encoded by `Model.encode`, to be scored by the same model any number of times.

    Attributes
    ----------
    programs : Programs
        The programs of the model.
    isa : str
        Instruction set that the coding is laid out for.
    coded : object
        The ranks, as `bitslice` reads them.
    nbytes : int
    """

    programs: Programs
    isa: str
    coded: Any

    def __repr__(self) -> str:
        return f"<gpuqs.EncodedDocuments: {len(self):,} for {self.isa}, {self.nbytes:,} bytes>"

    def __len__(self) -> int:
        return len(self.coded)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "encoded documents belong to one model in one process, and cannot be pickled or copied; send the documents "
            "themselves, and encode them again there"
        )

    @property
    def nbytes(self) -> int:
        return int(self.coded.nbytes)
