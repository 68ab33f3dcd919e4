"""Small bugs that could be planted in a file, found in its syntax: what `mutation.py` samples from.

A mutation replaces bytes start … end of a file by other bytes; the rest stays as it is.
Left out, since no test should depend on it or none could notice it on a CPU: docstrings, messages (raise, warn, print,
f-strings, progress), annotations, decorators, imports, `__repr__` and the like, TYPE_CHECKING, the files in `LEFT_OUT`
(kernels of CUDA and Triton and what drives them), `GPU_FUNCTIONS`, whatever stands under a condition that mentions CUDA
or kernels.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

LEFT_OUT = re.compile(r"nn/kernels/|superposition/cuda(_kernels)?\.py|train/graphed\.py|/__main__\.py")
SILENT = {"__repr__", "__str__", "extra_repr"}
MESSAGES = {"print", "warn", "UserError", "add_argument", "add_parser", "TypeVar", "require", "progress", "update"}
ON_GPU = ("cuda", "kernels", "fused(", "on_chip(", "TYPE_CHECKING", "__name__")  # in a condition
GPU_FUNCTIONS = {"fused", "on_chip", "on_cuda", "_new_enough"}  # they say whether a kernel serves
# in two arguments
SYMMETRIC = {"transpose", "max", "min", "maximum", "minimum", "swapaxes", "equal", "isclose", "dot", "addcmul_",
    "promote_types"}  # fmt: skip
# a check, or nothing at all on a CPU
IDLE = {"device", "strict", "non_blocking", "encoding", "quiet"}

OPERATORS = {
    ast.Add: ("+", ["-"]), ast.Sub: ("-", ["+"]), ast.Mult: ("*", ["/"]), ast.Div: ("/", ["*"]),
    ast.FloorDiv: ("//", ["*"]), ast.Mod: ("%", ["//"]), ast.Pow: ("**", ["*"]), ast.BitAnd: ("&", ["|"]),
    ast.BitOr: ("|", ["&"]), ast.Lt: ("<", ["<=", ">"]), ast.LtE: ("<=", ["<"]), ast.Gt: (">", [">=", "<"]),
    ast.GtE: (">=", [">"]), ast.Eq: ("==", ["!="]), ast.NotEq: ("!=", ["=="]), ast.In: ("in", ["not in"]),
    ast.NotIn: ("not in", ["in"]), ast.Is: ("is", ["is not"]), ast.IsNot: ("is not", ["is"]),
    ast.And: ("and", ["or"]), ast.Or: ("or", ["and"]),
}  # fmt: skip
OTHER_NAMES = {
    "min": "max", "max": "min", "amin": "amax", "amax": "amin", "argmin": "argmax", "argmax": "argmin", "sum": "mean",
    "mean": "sum", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor", "zeros": "ones", "ones": "zeros",
    "zeros_like": "ones_like", "cos": "sin", "sin": "cos", "log1p": "log", "expm1": "exp", "append": "extend",
    "minimum": "maximum", "maximum": "minimum", "log_softmax": "softmax", "train": "eval", "eval": "train",
}  # fmt: skip
DROPPED = {"sorted", "reversed", "sqrt", "square", "abs", "detach", "clone", "clamp", "exp", "log", "softmax", "round",
    "relu", "sigmoid", "tanh", "normalize", "strip", "lower", "expanduser", "item"}  # fmt: skip  # f(x) -> x


@dataclass(frozen=True)
class Mutation:
    file: str
    line: int
    column: int
    start: int
    end: int
    operator: str
    before: str
    after: str

    @property
    def name(self) -> str:
        flat = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.file}:{self.line}:{self.column} {self.operator}: {' -> '.join(flat)}"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]


class Finder:
    """All mutations of one file, in the order of its syntax tree."""

    def __init__(self, file: str, source: bytes):
        self.file, self.source = file, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)  # type: ignore

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def replace(self, operator: str, start: int, end: int, after: str) -> Mutation:
        line = self.source.count(b"\n", 0, start) + 1
        before = self.source[start:end].decode()
        return Mutation(self.file, line, start - self.starts[line - 1] + 1, start, end, operator, before, after)

    def instead(self, operator: str, node: ast.AST, after: str) -> Mutation:
        return self.replace(operator, *self.span(node), after)

    def between(self, operator: ast.AST, left: ast.AST, right: ast.AST) -> Iterator[Mutation]:
        """The operator's sign stands between its operands; nothing else there looks like it."""
        sign, others = OPERATORS.get(type(operator), ("", []))
        start, end = self.span(left)[1], self.span(right)[0]
        at = start + self.source[start:end].find(sign.encode())
        for other in others:
            yield self.replace("operator", at, at + len(sign.encode()), other)

    def find(self) -> Iterator[Mutation]:
        yield from self.walk(ast.parse(self.source))

    def walk(self, node: ast.AST) -> Iterator[Mutation]:
        for mutation in self.of(node):
            if mutation.before != mutation.after:
                yield mutation
        for name, value in ast.iter_fields(node):
            if name not in {"annotation", "returns", "decorator_list", "msg", "type_comment"}:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST) and not self.left_out(child):
                        yield from self.walk(child)

    def left_out(self, node: ast.AST) -> bool:
        match node:
            case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
                return True
            case ast.FunctionDef(name=name):
                return name in SILENT or "cuda" in name
            case ast.If(test=test) | ast.IfExp(test=test):
                return any(word in self.text(test) for word in ON_GPU)
            case ast.keyword(arg=name):
                return name in IDLE
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                return name in MESSAGES or self.text(node.func).startswith(("torch.cuda", "kernels."))
        return False

    def of(self, node: ast.AST) -> Iterator[Mutation]:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                if not any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (left, right)):
                    yield from self.between(op, left, right)
                    if isinstance(op, ast.Add | ast.Sub | ast.Mult | ast.Div):
                        yield self.instead("operand dropped", node, f"({self.text(left)})")
                        yield self.instead("operand dropped", node, f"({self.text(right)})")
            case ast.Compare(left=left, ops=ops, comparators=rights):
                for one, sign, other in zip([left, *rights], ops, rights, strict=False):
                    yield from self.between(sign, one, other)
            case ast.BoolOp(op=op, values=values):
                yield from self.between(op, values[0], values[1])
                yield self.instead("operand dropped", node, f"({self.text(values[0])})")
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield self.instead("sign dropped", node, f"({self.text(operand)})")
            case ast.Constant(value=value):
                for changed in _other_constants(value):
                    yield self.instead("constant", node, changed)
            case ast.If(test=test) | ast.IfExp(test=test):
                yield self.instead("condition forced", test, "True")
                yield self.instead("condition forced", test, "False")
                if isinstance(node, ast.If) and node.orelse:
                    yield self.instead("branches exchanged", test, f"not ({self.text(test)})")
                if isinstance(node, ast.IfExp):
                    branches = f"({self.text(node.orelse)}) if {self.text(test)} else ({self.text(node.body)})"
                    yield self.instead("branches exchanged", node, branches)
            case ast.Call():
                yield from self.of_call(node)
            case ast.Slice(lower=lower, upper=upper):
                for bound in filter(None, (lower, upper)):
                    if not isinstance(bound, ast.Constant):
                        yield self.instead("slice", bound, f"({self.text(bound)}) + 1")
                    yield self.instead("slice", bound, "")
            case ast.Return(value=ast.Tuple(elts=[one, other, *_])):
                start, end = self.span(one)[0], self.span(other)[1]
                yield self.replace("parts swapped", start, end, f"{self.text(other)}, {self.text(one)}")
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield self.instead("statement removed", node, "pass")
                if isinstance(node, ast.AugAssign):
                    start, end = self.span(node.target)[1], self.span(node.value)[0]
                    yield self.replace("operator", start, end, " = ")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self.instead("statement removed", node, "pass")
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(value)):
                    yield self.instead("statement removed", node, "pass")
            case ast.comprehension(ifs=[test, *_]):
                yield self.instead("condition forced", test, "True")

    def of_call(self, call: ast.Call) -> Iterator[Mutation]:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        pieces = [self.text(part) for part in (*call.args, *call.keywords)]
        inside = self.span(call.func)[1], self.span(call)[1]
        for i, keyword in enumerate(call.keywords, start=len(call.args)):
            if keyword.arg not in IDLE:
                yield self.replace("keyword dropped", *inside, f"({', '.join(pieces[:i] + pieces[i + 1 :])})")
        for one, other in pairwise(k for k in call.keywords if k.arg and k.arg not in IDLE):
            swapped = f"{one.arg}={self.text(other.value)}, {other.arg}={self.text(one.value)}"
            yield self.replace("keywords swapped", self.span(one)[0], self.span(other)[1], swapped)
        if len(call.args) > 1:
            turned = [pieces[1], pieces[0], *pieces[2:]]
            shorter = pieces[: len(call.args) - 1] + pieces[len(call.args) :]
            if name not in SYMMETRIC:
                yield self.replace("arguments swapped", *inside, f"({', '.join(turned)})")
            yield self.replace("argument dropped", *inside, f"({', '.join(shorter)})")
        if name in OTHER_NAMES:
            end = self.span(call.func)[1]
            yield self.replace("name", end - len(name), end, OTHER_NAMES[name])
        if name in DROPPED:
            module = isinstance(call.func, ast.Attribute) and self.text(call.func.value) in {"torch", "F", "math", "np"}
            kept = call.args[0] if module or isinstance(call.func, ast.Name) else call.func.value  # type: ignore
            yield self.instead("call dropped", call, f"({self.text(kept)})")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _other_constants(value: object) -> list[str]:
    match value:
        case "sum" | "mean":
            return ['"mean"' if value == "sum" else '"sum"']
        case bool():
            return [str(not value)]
        case int():
            return [str(value + 1), str(value - 1)] if value else ["1", "-1"]
        case float():
            return [repr(value * 1000 if 0 < value < 1e-3 else value * 2), repr(-value) if value else "1.0"]
    return []


def mutations(root: Path, file: str) -> list[Mutation]:
    return [] if LEFT_OUT.search(file) else list(Finder(file, (root / file).read_bytes()).find())


def usable(root: Path, mutation: Mutation) -> bool:
    """Whether it compiles, is no message, and could matter on a CPU."""
    try:
        ast.parse(mutation.apply((root / mutation.file).read_bytes()))
    except SyntaxError:
        return False
    message = mutation.operator == "statement removed" and mutation.before.partition("(")[0] in MESSAGES
    return not message and scope(root, mutation)[0] not in GPU_FUNCTIONS


def scope(root: Path, mutation: Mutation) -> tuple[str, range]:
    """The innermost function around it and its lines; none where there is no function."""
    functions = [
        (node.name, range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for node in ast.walk(ast.parse((root / mutation.file).read_bytes()))
        if isinstance(node, ast.FunctionDef)
    ]
    around = [function for function in functions if mutation.line in function[1]]
    return min(around, key=lambda function: len(function[1]), default=("", range(0)))
