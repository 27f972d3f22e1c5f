"""The program that the `sympy` tool runs inside the sandbox; the worker reads this file as text and never imports it.

Reads one JSON request from standard input and prints `{"text": ...}` or `{"error": ...}`. The parser evaluates the
policy's text as Python, so the output is no more trustworthy than that text.
"""

from __future__ import annotations

import json
import re
import sys
from tokenize import TokenError
from typing import Any

import sympy
from sympy.parsing import sympy_parser

NAMES: dict[str, Any] = {name: value for name, value in vars(sympy).items() if not name.startswith("_")}
NAMES |= {
    "abs": sympy.Abs, "min": sympy.Min, "max": sympy.Max, "pow": sympy.Pow, "round": round, "sum": sum, "len": len,
    "e": sympy.E, "inf": sympy.oo, "infinity": sympy.oo, "infty": sympy.oo, "arcsin": sympy.asin, "arccos": sympy.acos,
    "arctan": sympy.atan, "arcsinh": sympy.asinh,
    "log2": lambda x: sympy.log(x, 2), "log10": lambda x: sympy.log(x, 10),
    "log_2": lambda x: sympy.log(x, 2), "log_10": lambda x: sympy.log(x, 10), "lg": lambda x: sympy.log(x, 10),
    "C": sympy.binomial, "nCr": sympy.binomial, "range": range,
    "Derivative": sympy.diff, "derivative": sympy.diff, "differentiate": sympy.diff,
}  # fmt: skip
CONSTANT = re.compile("pi|e|E|I|oo|inf|infinity|infty|zoo|nan|True|False|None|true|false")
PLAIN = (*sympy_parser.standard_transformations, sympy_parser.convert_xor)
LENIENT = (
    *PLAIN,
    sympy_parser.implicit_multiplication,
    sympy_parser.implicit_application,
    sympy_parser.function_exponentiation,
)
PREFERRED = ("x", "t", "y", "z", "n")
DIGITS = 12


class Refusal(Exception):
    """Raised to reject a computation; the policy reads the text."""


class SympyRequest:
    """The parsed arguments of one call."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        names = re.findall(r"[^\W\d]\w*", data.get("variable") or "")
        text = data["expression"]
        self.local = local_names(text, names)
        self.expression = parse(text, self.local)
        self.declared = [sympy.Symbol(name) for name in names]

    def value(self, key: str) -> Any:
        """Parse the bound or the point under `key`."""
        text = self.data.get(key)
        if text is None:
            raise Refusal(f"{self.data['operation']} needs `{key}`")
        return parse(text, self.local | local_names(text, [str(symbol) for symbol in self.declared]))

    def has(self, key: str) -> bool:
        return self.data.get(key) is not None

    def at_point(self, value: Any) -> Any:
        """Substitute the point for the variable in `value`, if the request contains a point."""
        return value.subs(self.variable(), self.value("point")) if self.has("point") else value

    def parts(self) -> list[Any]:
        """Return the list of expressions, which has one element unless the input is a list."""
        value = self.expression
        return [sympy.sympify(part) for part in (value if isinstance(value, list | tuple | sympy.Tuple) else [value])]

    def free(self) -> list[Any]:
        """Return the free symbols, sorted by name."""
        return sorted(set().union(*(part.free_symbols for part in self.parts())), key=str)

    def variable(self) -> Any:
        """Return the variable of the operation."""
        if self.declared:
            return self.declared[0]
        free = self.free() or [sympy.Symbol("x")]
        if len(free) == 1:
            return free[0]
        for name in PREFERRED:
            if sympy.Symbol(name) in free:
                return sympy.Symbol(name)
        raise Refusal(f"say which of {', '.join(map(str, free))} is the `variable`")

    def matrix(self) -> Any:
        try:
            return sympy.Matrix(self.expression)
        except (TypeError, ValueError) as error:
            raise Refusal("not a matrix; write it like [[1, 2], [3, 4]]") from error


def local_names(text: str, variables: list[str]) -> dict[str, Any]:
    """Map names to symbols, even if SymPy defines the names otherwise, and names such as `xy` to products."""
    calls = re.findall(r"([^\W\d]\w*)\s*(\(?)", text)
    words = {name for name, _ in calls} | set(variables)
    local: dict[str, Any] = {}
    for name, call in calls:
        if name in variables:
            local[name] = sympy.Symbol(name)
        elif not CONSTANT.fullmatch(name) and not is_function(name, call):
            product = len(name) > 1 and all(sign in words and sign.isalpha() for sign in name)
            local[name] = sympy.Mul(*map(sympy.Symbol, name)) if product else sympy.Symbol(name)
    return local


def is_function(name: str, call: str) -> bool:
    """Whether a name is a SymPy function, or an undefined function such as f(x)."""
    if name in NAMES:
        return bool(call) or (len(name) > 1 and name not in ("beta", "gamma", "zeta"))
    return bool(call) and (len(name) > 1 or name in "fgh")


def parse(text: str, local: dict[str, Any]) -> Any:
    """Parse `text` into a SymPy object, strictly at first, because the lenient parser misreads some Python."""
    try:
        return tidy(sympy_parser.parse_expr(text, dict(local), PLAIN, dict(NAMES)))
    except (SyntaxError, TypeError, AttributeError, TokenError):
        pass
    try:
        return tidy(sympy_parser.parse_expr(text, dict(local), LENIENT, dict(NAMES)))
    except (SyntaxError, TypeError, AttributeError, ValueError, IndexError, TokenError) as error:
        raise Refusal(f"could not parse `{text[:200]}`: {reason(text, error)}") from error


def reason(text: str, error: Exception) -> str:
    """Explain a parse error; positions in SymPy's own errors refer to generated Python code."""
    stripped = text.strip()
    if stripped and stripped[-1] in "+-*/^=,<>":
        return f"it ends with `{stripped[-1]}`"
    double = re.search(r"[*/^+-]\s*[/^]|[-+*/^]\s*\)|\(\s*[*/^]", stripped)
    if double:
        return f"`{double.group()}` at character {double.start() + 1}"
    if isinstance(error, SyntaxError | TokenError):
        return "it is not mathematics in the notation 2*x**2 - 3*x + 1 = 0"
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def tidy(value: Any) -> Any:
    """Convert single numbers to SymPy objects; lists and tuples stay Python objects."""
    if isinstance(value, str):
        raise SyntaxError("text")
    return value if isinstance(value, list | tuple | dict | set) else sympy.sympify(value)


# operations


def evaluate(request: SympyRequest) -> str:
    value = request.at_point(request.expression)
    return show(value.doit() if hasattr(value, "doit") else value)


def numeric(request: SympyRequest) -> str:
    return ", ".join(str(sympy.N(request.at_point(part), 15)) for part in request.parts())


def solve(request: SympyRequest) -> str:
    conditions = request.parts()
    if all(condition is sympy.true for condition in conditions):
        return "true for all values"
    if any(condition is sympy.false for condition in conditions):
        return "no solution"
    equations = [part for part in conditions if not is_inequality(part)]
    unknowns = request.declared or request.free()
    if not unknowns:
        raise Refusal("there is no unknown to solve for")
    if not equations:
        return str(sympy.reduce_inequalities(conditions, request.variable()))
    if len(conditions) == 1:
        return solve_one(equations[0], request.variable())
    solutions = sympy.solve(equations, unknowns, dict=True)
    tests = [part for part in conditions if is_inequality(part)]
    solutions = [solution for solution in solutions if not any(test.subs(solution) == sympy.false for test in tests)]
    return "\n".join(show_solution(solution, unknowns) for solution in solutions) or "no solution"


def is_inequality(value: Any) -> bool:
    return isinstance(value, sympy.core.relational.Relational) and not isinstance(value, sympy.Eq)


def solve_one(equation: Any, unknown: Any) -> str:
    try:
        solutions = sympy.solve(equation, unknown)
    except NotImplementedError:
        return solve_numerically(equation, unknown)
    return "\n".join(f"{unknown} = {show(value)}".replace("= ≈", "≈") for value in solutions) or "no solution"


def solve_numerically(equation: Any, unknown: Any) -> str:
    for start in (1, 0.1, -1, 10, -10):
        try:
            value = sympy.nsolve(equation, unknown, start)
        except (ValueError, TypeError, ZeroDivisionError):
            continue
        return f"{unknown} ≈ {decimal(value)} (found numerically, there may be others)"
    raise Refusal("there is no known way to solve this")


def show_solution(solution: dict[Any, Any], unknowns: list[Any]) -> str:
    return ", ".join(f"{unknown} = {show(solution[unknown])}" for unknown in unknowns if unknown in solution)


def differentiate(request: SympyRequest) -> str:
    value = sympy.diff(request.expression, request.variable(), request.data.get("order") or 1)
    return show(request.at_point(value))


def integrate(request: SympyRequest) -> str:
    if request.has("lower") or request.has("upper"):
        limits = bounds(request)
        value = sympy.integrate(request.expression, limits)
        return without_closed_form(request.expression, limits) if value.has(sympy.Integral) else show(value)
    value = sympy.integrate(request.expression, request.variable())
    if value.has(sympy.Integral):
        raise Refusal("no antiderivative in closed form was found")
    return f"{show(value)} + C"


def without_closed_form(expression: Any, limits: Any) -> str:
    value = sympy.Integral(expression, limits)
    if sympy.N(value, DIGITS).has(sympy.Integral):
        raise Refusal(f"neither a closed form nor a number was found for {value}")
    return f"no closed form, ≈ {decimal(value)}"


def limit(request: SympyRequest) -> str:
    point = (request.data.get("point") or "").strip()
    request.data["point"] = point.rstrip("+-") or None
    target, variable = request.value("point"), request.variable()
    if point.endswith(("+", "-")) or not target.is_finite:
        return show(sympy.limit(request.expression, variable, target, "-" if point.endswith("-") else "+"))
    left, right = (sympy.limit(request.expression, variable, target, side) for side in "-+")
    if left != right:
        return f"does not exist: {show(left)} from the left, {show(right)} from the right"
    return show(right)


def series(request: SympyRequest) -> str:
    point = request.value("point") if request.has("point") else 0
    return show(sympy.series(request.expression, request.variable(), point, request.data.get("order") or 6))


def bounds(request: SympyRequest) -> tuple[Any, Any, Any]:
    return request.variable(), request.value("lower"), request.value("upper")


def rref(request: SympyRequest) -> str:
    reduced, pivots = request.matrix().rref()
    return f"{show(reduced)}, rank {len(pivots)}"


def inverse(request: SympyRequest) -> str:
    matrix = request.matrix()
    if matrix.rows != matrix.cols or matrix.det() == 0:
        raise Refusal("this matrix has no inverse")
    return show(matrix.inv())


def eigenvalues(request: SympyRequest) -> str:
    multiplicities = request.matrix().eigenvals()
    return "\n".join(
        f"{show(value)}{f' (multiplicity {times})' if times > 1 else ''}" for value, times in multiplicities.items()
    )


OPERATIONS = {
    "evaluate": evaluate,
    "numeric": numeric,
    "solve": solve,
    "simplify": lambda request: show(sympy.simplify(request.expression)),
    "expand": lambda request: show(sympy.expand(request.expression)),
    "factor": lambda request: factored(request.expression),
    "differentiate": differentiate,
    "integrate": integrate,
    "limit": limit,
    "series": series,
    "sum": lambda request: show(sympy.summation(request.expression, bounds(request))),
    "product": lambda request: show(sympy.product(request.expression, bounds(request))),
    "determinant": lambda request: show(request.matrix().det()),
    "inverse": inverse,
    "eigenvalues": eigenvalues,
    "rref": rref,
}


def factored(value: Any) -> str:
    if isinstance(value, sympy.Integer) and abs(value) > 1:
        powers = sympy.factorint(value).items()
        return " * ".join(f"{prime}**{power}" if power > 1 else str(prime) for prime, power in powers)
    return show(sympy.factor(value))


def show(value: Any) -> str:
    """Format a value exactly, with a decimal if useful; a root without a closed form is shown only as a decimal."""
    if isinstance(value, sympy.MatrixBase):
        return str(value.tolist())
    if isinstance(value, sympy.Float):
        return decimal(value)
    if not isinstance(value, sympy.Expr) or not value.is_number or value.has(sympy.Float):
        return str(value)
    if value.is_Integer or (value / sympy.I).is_Integer or not value.is_finite:
        return str(value)
    return f"≈ {decimal(value)}" if value.has(sympy.CRootOf) else f"{value} ≈ {decimal(value)}"


def decimal(value: Any) -> str:
    """Format a value with twelve significant digits, without trailing zeros."""
    return re.sub(r"(\.\d*?)0+(?![\d.])", r"\1", str(sympy.N(value, DIGITS))).replace(". ", " ").rstrip(".")


def main() -> None:
    data = json.loads(sys.stdin.read())
    try:
        answer = {"text": OPERATIONS[data["operation"]](SympyRequest(data))}
    except Refusal as error:
        answer = {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - the policy sees any exception of SymPy on one line
        lines = str(error).splitlines() or [""]
        too_long = "integer string conversion" in lines[0]
        answer = {
            "error": "the result has too many digits" if too_long else f"{type(error).__name__}: {lines[0][:300]}"
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
