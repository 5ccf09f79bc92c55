"""Every operation of the JIT's encoder, checked by a disassembler: register classes, widths, displacements, limits.

AVX-512 code is disassembled, not run, so that any machine can test it.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from assembling import LETTERS, WIDTHS, assemble, build_assembler, disassemble, prefetches

#: Registers of each class: the first and last that an encoding reaches with the same prefix bits.
CLASSES = {"vex": (0, 1, 7, 8, 14), "evex": (0, 1, 7, 8, 14, 15, 16, 23, 24, 30)}
#: The register that the encoder reserves for itself.
OWN = {"vex": 15, "evex": 31}
BASES = {"predicates": "rbx", "planes": "rbp"}


@pytest.fixture(scope="module")
def assembler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_assembler(tmp_path_factory.mktemp("assembler"))


class Machine:
    """Instructions of one encoding and width, as the disassembler spells them."""

    def __init__(self, encoding: str, word_bytes: int) -> None:
        self.encoding, self.word_bytes, self.wide = encoding, word_bytes, encoding == "evex"

    def register(self, number: int) -> str:
        return f"{LETTERS[self.word_bytes]}mm{number}"

    def memory(self, operand: tuple[str, int]) -> str:
        base, displacement = BASES[operand[0]], operand[1] * self.word_bytes
        return f"{LETTERS[self.word_bytes]}mmword ptr [{base}{f' + {displacement:#x}' if displacement > 9 else ''}]"

    def fits_vex(self, *operands: int | tuple[str, int]) -> bool:
        """Whether the instruction can be encoded in VEX; memory operands always can."""
        return not self.wide or (self.word_bytes < 64 and all(isinstance(o, tuple) or o < 16 for o in operands))

    def operand(self, operand: int | tuple[str, int]) -> str:
        return self.memory(operand) if isinstance(operand, tuple) else self.register(operand)

    def copy(self, to: int | tuple[str, int], source: int | tuple[str, int]) -> str:
        return f"vmovdqa{'' if self.fits_vex(to, source) else '64'} {self.operand(to)}, {self.operand(source)}"

    def logic(self, what: str, to: int, a: int, b: int | tuple[str, int]) -> str:
        """A logic instruction; ``a`` and ``b`` are swapped if VEX encodes ``a`` shorter as the last operand."""
        q = "" if self.fits_vex(to, a, b) else "q"
        if isinstance(b, int) and a < 8 <= b:
            a, b = b, a
        return f"vp{what}{q} {self.register(to)}, {self.register(a)}, {self.operand(b)}"

    def ternary(self, to: int, a: int, b: str, table: int) -> str:
        return f"vpternlogq {self.register(to)}, {self.register(a)}, {b}, {table:#x}"


def truth_table(function: object) -> int:
    """The immediate byte by which `vpternlog` computes ``function`` of its three operands."""
    return sum(function(i >> 2 & 1, i >> 1 & 1, i & 1) << i for i in range(8))  # type: ignore[operator]


def expected(machine: Machine, operation: str, *arguments: object) -> list[str]:
    """The instructions that an operation stands for."""
    m, own = machine, OWN[machine.encoding]
    match operation, *arguments:
        case "load" | "store" | "move", to, a:
            return [m.copy(to, a)]
        case "and_with" | "or_with", to, a, b:
            return [m.logic(operation.removesuffix("_with"), to, a, b)]
        case "exclusive_or", to, a, b:
            return [m.logic("xor", to, a, b)]
        case "exclusive_or_with", to, a:
            return [m.logic("xor", own, a, to), m.copy(to, own)]
        case "exclusive_or3", to, a, b if m.wide:
            return [m.ternary(to, a, m.register(b), truth_table(lambda x, y, z: x ^ y ^ z))]
        case "exclusive_or3", to, a, b:
            return [m.logic("xor", to, to, a), m.logic("xor", to, to, b)]
        case "or_and", to, a, b, c if not m.wide:
            return [m.logic("and", own, b, c), m.logic("or", to, own, a)]
        case "or_and", to, a, b, c if to == b:
            return [m.ternary(b, a, m.memory(c), truth_table(lambda x, y, z: y | (x & z)))]
        case "or_and", to, a, b, c if to != a and m.fits_vex(to, a, b):
            return [m.logic("and", to, b, c), m.logic("or", to, to, a)]
        case "or_and", to, a, b, c:
            moved = [] if to == a else [m.copy(to, a)]
            return [*moved, m.ternary(to, b, m.memory(c), truth_table(lambda x, y, z: x | (y & z)))]
    raise AssertionError(operation)


#: Each operation's operands: a register or a word in memory.
OPERATIONS = {
    "load": "rm",
    "store": "mr",
    "move": "rr",
    "and_with": "rrm",
    "or_with": "rrm",
    "exclusive_or": "rrr",
    "exclusive_or_with": "mr",
    "exclusive_or3": "rrr",
    "or_and": "rrrm",
}


def words(word_bytes: int) -> list[int]:
    """Words with displacements of each class: none, within a byte and its ends, within 16 bits, the last of 31 bits."""
    displacements = (0, word_bytes, 128 - word_bytes, 128, 256, 1 << 15, 1 << 16, (1 << 31) - word_bytes)
    return sorted({d // word_bytes for d in displacements})


def operand_lists(operation: str, encoding: str, word_bytes: int) -> list[tuple[object, ...]]:
    """Operand lists: all register classes with two words, each register in each place, all words with each base."""
    kinds = OPERATIONS[operation]
    memory = [(base, word) for base in BASES for word in words(word_bytes)]
    wide = [CLASSES[encoding] if kind == "r" else memory[1:3] for kind in kinds]
    lists = list(product(*wide))
    for place, kind in enumerate(kinds):
        usual: list[object] = [(3, 12, 5, 9)[i] if k == "r" else memory[1] for i, k in enumerate(kinds)]
        for value in range(OWN[encoding]) if kind == "r" else memory:
            lists.append((*usual[:place], value, *usual[place + 1 :]))
    return [one for one in lists if operation != "exclusive_or3" or one[0] not in one[1:]]


def line_of(encoding: str, word_bytes: int, operation: str, arguments: tuple[object, ...]) -> str:
    flat = (f"{a[0]} {a[1]}" if isinstance(a, tuple) else str(a) for a in arguments)
    return " ".join([encoding, str(word_bytes), operation, *flat])


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("encoding", "word_bytes"), WIDTHS)
def test_operations_are_the_instructions_they_name(
    assembler: Path, encoding: str, word_bytes: int, operation: str
) -> None:
    machine = Machine(encoding, word_bytes)
    lists = operand_lists(operation, encoding, word_bytes)
    codes = assemble(assembler, (line_of(encoding, word_bytes, operation, one) for one in lists))
    for arguments, code in zip(lists, codes, strict=True):
        assert isinstance(code, bytes), (arguments, code)
        assert disassemble(code) == expected(machine, operation, *arguments), (arguments, code.hex())


@pytest.mark.parametrize(
    ("line", "n_bytes"),
    [
        ("vex 32 and_with 1 2 planes 3", 5),  # 96 bytes further
        ("vex 32 and_with 1 2 planes 4", 8),
        ("evex 64 and_with 1 2 planes 127", 7),  # 127 words further
        ("evex 64 and_with 1 2 planes 128", 10),
        ("evex 16 and_with 1 2 planes 7", 5),
        ("evex 16 and_with 1 17 planes 127", 7),
        ("evex 16 exclusive_or 1 2 12", 4),
        ("evex 16 exclusive_or 1 12 2", 4),
        ("evex 16 exclusive_or 1 12 13", 5),
        ("evex 16 exclusive_or 1 2 16", 6),
        ("evex 64 exclusive_or 1 2 3", 6),
        ("evex 32 or_and 1 1 2 predicates 1000", 11),
        ("evex 32 or_and 1 2 3 predicates 1000", 12),
        ("evex 32 or_and 1 2 17 predicates 1000", 15),
        ("evex 64 or_and 1 2 3 predicates 1000", 17),
    ],
)
def test_instructions_take_few_bytes(assembler: Path, line: str, n_bytes: int) -> None:
    (code,) = assemble(assembler, [line])
    assert isinstance(code, bytes) and len(code) == n_bytes, code


def test_registers_within_the_classes_are_all_of_them() -> None:
    """Every register in each place, and each class combined with each other."""
    for encoding, word_bytes in WIDTHS:
        lists = operand_lists("or_and", encoding, word_bytes)
        for place in range(3):
            assert {one[place] for one in lists} == set(range(OWN[encoding]))
        assert len({one[:3] for one in lists}) >= len(CLASSES[encoding]) ** 3


@pytest.mark.parametrize(("encoding", "word_bytes"), WIDTHS)
def test_functions_follow_the_calling_convention(assembler: Path, encoding: str, word_bytes: int) -> None:
    """Registers are popped in reverse order, the stack is aligned at calls, and functions start on cache lines."""
    (code,) = assemble(assembler, [f"{encoding} {word_bytes} function"])
    assert isinstance(code, bytes)
    saved = ["rbx", "rbp", "r14", "r15", "rax"]  # together with the return address, a multiple of 16 bytes
    begin = [
        "endbr64",
        *(f"push {register}" for register in saved),
        "mov rbx, rdi",
        "mov rbp, rsi",
        "mov r14, rdx",
        "mov r15, rcx",
    ]
    end = [*(f"pop {register}" for register in saved[::-1]), "ret"]
    assert (len(saved) + 1) % 2 == 0
    assert disassemble(code) == [*begin, *end, *["int3"] * (64 - len(code[:64].rstrip(b"\xcc"))), *begin]


@pytest.mark.parametrize(("encoding", "word_bytes"), WIDTHS)
def test_calls(assembler: Path, encoding: str, word_bytes: int) -> None:
    calls = [(function, leaf_bytes) for function in range(16) for leaf_bytes in (1, 127, 128, 8192, (1 << 31) - 1)]
    codes = assemble(assembler, (f"{encoding} {word_bytes} call_with_leaves {f} {b}" for f, b in calls))
    for (function, leaf_bytes), code in zip(calls, codes, strict=True):
        assert isinstance(code, bytes)
        place = {0: "", 1: " + 8"}.get(function, f" + {8 * function:#x}")
        assert disassemble(code) == [
            "mov rdi, rbp",
            "mov rsi, r14",
            f"add r14, {leaf_bytes if leaf_bytes < 10 else hex(leaf_bytes)}",
            "xor ecx, ecx",
            f"call qword ptr [r15{place}]",
        ]


@pytest.mark.parametrize("n_calls", [0, 1, 3, 4, 40, 100])
def test_code_is_prefetched_ahead(assembler: Path, n_calls: int) -> None:
    """For each cache line written, prefetches included, one prefetch of the line 8,192 bytes ahead: by calls sixteen
    lines at a time, the rest by instructions."""
    (code,) = assemble(assembler, [f"evex 64 prefetch_ahead {n_calls}"])
    assert isinstance(code, bytes)
    assert [target for _, target in prefetches(code)] == [8192 + at for at in range(0, len(code), 64)]
    instructions = disassemble(code)
    n_by_itself = sum(one.startswith("prefetch") for one in instructions)
    assert not any(one.startswith("prefetch") for one in instructions[: len(instructions) - n_by_itself])
    by_calls = [int(one.split(", ")[1], 0) for one in instructions if one.startswith("mov ecx")]
    assert set(by_calls) <= {16} and n_by_itself <= 16 and bool(by_calls) == (n_calls > 40)
    assert len(instructions) == 5 * n_calls + len(by_calls) + n_by_itself
    assert instructions.count("xor ecx, ecx") == n_calls - len(by_calls)


def too_far(word_bytes: int) -> tuple[int, ...]:
    """Words beyond 31-bit displacements: the first, those that wrap in 32 bits to small displacements, the last."""
    return (1 << 31) // word_bytes, (1 << 32) // word_bytes, (1 << 32) // word_bytes + 1, (1 << 32) - 1


def too_large() -> list[tuple[str, str]]:
    """Operations whose operands no instruction can encode, and their error messages."""
    cases = [(f"{encoding} 8 function", "no register holds a word") for encoding in ("vex", "evex")]
    cases += [("vex 64 function", "no register holds a word"), ("none 32 function", "no encoding")]
    for encoding, word_bytes in WIDTHS:
        start, own = f"{encoding} {word_bytes}", OWN[encoding]
        for operation, kinds in OPERATIONS.items():
            usual: list[object] = [i + 1 if kind == "r" else ("planes", 1) for i, kind in enumerate(kinds)]
            for place, kind in enumerate(kinds):
                bad = (
                    (-1, own, own + 1, 64)
                    if kind == "r"
                    else tuple((base, word) for base in BASES for word in too_far(word_bytes))
                )
                says = "no register" if kind == "r" else "a displacement does not hold word"
                for value in bad:
                    arguments = (*usual[:place], value, *usual[place + 1 :])
                    cases.append((line_of(encoding, word_bytes, operation, arguments), says))
        cases += [(f"{start} exclusive_or3 {registers}", "into one of them") for registers in ("1 1 2", "1 2 1")]
        cases += [(f"{start} call_with_leaves {function} 64", "does not hold function") for function in (-1, 16, 32)]
        cases += [(f"{start} call_with_leaves 1 {1 << 31}", "an immediate does not hold")]
        cases += [(f"{start} call_with_leaves 1 {-(1 << 31) - 1}", "an immediate does not hold")]
    return cases


def test_what_an_instruction_has_no_room_for_is_an_error(assembler: Path) -> None:
    cases = too_large()
    answers = assemble(assembler, (line for line, _ in cases))
    for (line, says), answer in zip(cases, answers, strict=True):
        assert isinstance(answer, str), f"{line}: {answer!r}"
        assert says in answer, f"{line}: {answer}"
