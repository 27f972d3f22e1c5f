"""The algebra tool: what it computes, the notation it reads, and that hard or hostile expressions end as errors."""

import pytest

from agent_rl.errors import ToolError
from agent_rl.tools.builtin._sympy.notation import to_sympy
from agent_rl.tools.builtin.sympy import SymPy
from agent_rl.tools.spec import ToolSpec
from agent_rl.trajectory import ToolStatus


@pytest.fixture
def sympy(one_trajectory):
    """Results of calls, each given as (operation, expression, other arguments)."""

    def sympy(*calls, **config):
        arguments = [{"operation": call[0], "expression": call[1], **(call[2] if call[2:] else {})} for call in calls]
        return one_trajectory([ToolSpec.from_class(SymPy, config={"timeout_s": 60, **config})], *arguments)

    return sympy


RESULTS = [
    (("evaluate", "1/3"), "1/3 ≈ 0.333333333333"),
    (("evaluate", "0.1 + 0.2"), "0.3"),
    (("evaluate", "5! / 2!"), "60"),
    (("evaluate", "sin(30°)"), "1/2 ≈ 0.5"),
    (("evaluate", "sin 30° + 90°/30°"), "7/2 ≈ 3.5"),
    (("evaluate", "√2 * √8 + 10²³"), "100000000000000000000004"),
    (("evaluate", "integrate(x^2, (x, 0, 1))"), "1/3 ≈ 0.333333333333"),
    (("evaluate", "diff(x**3, x).subs(x, 2)"), "12"),
    (("evaluate", "x^2 + 1", {"variable": "x", "point": 3}), "10"),
    (("evaluate", "[[1, 2], [3, 4]] * [[0, 1], [1, 0]]"), "[[2, 1], [4, 3]]"),
    (("numeric", "2 pi"), "6.28318530717959"),
    (("solve", "x^2 - 5x + 6 = 0"), "x = 2\nx = 3"),
    (("solve", "x^2 = 2"), "x = -sqrt(2) ≈ -1.41421356237\nx = sqrt(2) ≈ 1.41421356237"),
    (("solve", "x^2 + 1 = 0"), "x = -I\nx = I"),
    (("solve", "x + y = 3; x - y = 1"), "x = 2, y = 1"),
    (("solve", "x^2 + y^2 = 5, xy = 2, x > y"), "x = -1, y = -2\nx = 2, y = 1"),
    (("solve", "S = P*(1 + r)^n", {"variable": "P"}), "P = S/(r + 1)**n"),
    (("solve", "x^2 < 4"), "(-2 < x) & (x < 2)"),
    (("solve", "cos x = x"), "x ≈ 0.739085133215 (found numerically, there may be others)"),
    (("solve", "x = x"), "true for all values"),
    (("solve", "x^2 = 4; x != 2"), "x = -2"),
    (("solve", "x != 3"), "(x > -oo) & (x < oo) & Ne(x, 3)"),
    (("solve", "x = x + 1"), "no solution"),
    (("simplify", "sin^2 x + cos^2 x"), "1"),
    (("simplify", r"\frac{x^2 - 1}{x - 1}"), "x + 1"),
    (("expand", "(x + 1)(x - 1)"), "x**2 - 1"),
    (("factor", "x^2 - 5x + 6"), "(x - 3)*(x - 2)"),
    (("factor", "360"), "2**3 * 3**2 * 5"),
    (("differentiate", "e^(2x)"), "2*exp(2*x)"),
    (("differentiate", "x^3", {"order": 2, "point": "2"}), "12"),
    (("integrate", "x sin(x)"), "-x*cos(x) + sin(x) + C"),
    (("integrate", "e^(-x^2)", {"lower": "-oo", "upper": "infinity"}), "sqrt(pi) ≈ 1.77245385091"),
    (("limit", "sin(x)/x", {"point": "x -> 0"}), "1"),
    (("limit", "1/x", {"point": 0}), "does not exist: -oo from the left, oo from the right"),
    (("limit", "1/x", {"point": "0+"}), "oo"),
    (("limit", "(1 + 1/n)^n", {"point": "oo"}), "E ≈ 2.71828182846"),
    (("series", "exp(x)", {"order": 3}), "1 + x + x**2/2 + O(x**3)"),
    (("sum", "1/k^2", {"lower": 1, "upper": "oo"}), "pi**2/6 ≈ 1.64493406685"),
    (("sum", "i", {"variable": "i", "lower": 1, "upper": "n"}), "n**2/2 + n/2"),
    (("product", "k", {"lower": 1, "upper": 5}), "120"),
    (("determinant", "[[1, 2], [3, 4]]"), "-2"),
    (("inverse", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"), "[[-2, 1], [3/2, -1/2]]"),
    (("eigenvalues", "[[2, 0], [0, 2]]"), "2 (multiplicity 2)"),
    (("rref", "[[1, 2, 3], [4, 5, 6]]"), "[[1, 0, -1], [0, 1, 2]], rank 2"),
]


def test_every_operation_returns_its_result(sympy):
    results = sympy(*(call for call, _ in RESULTS))
    assert [result.text for result in results] == [expected for _, expected in RESULTS]


ERRORS = [
    (("evaluate", "2x +"), "Error: could not parse `2x +`: it ends with `+`"),
    (("evaluate", "2 ** / 3"), "Error: could not parse `2 ** / 3`: `* /` at character 4"),
    (("evaluate", "if x"), "Error: could not parse `if x`: it is not mathematics"),
    (("evaluate", "10**5000"), "Error: the result has too many digits"),
    (("solve", "a = b*c + d"), "Error: say which of a, b, c, d is the `variable`"),
    (("integrate", "x", {"lower": 0}), "Error: integrate needs `upper`"),
    (("integrate", "x^x"), "Error: no antiderivative in closed form was found"),
    (("limit", "1/x"), "Error: limit needs `point`"),
    (("integrate", "x, y", {"variable": "z"}), "Error: "),
    (("evaluate", "'text'"), "Error: could not parse"),
    (("inverse", "[[1, 2], [2, 4]]"), "Error: this matrix has no inverse"),
    (("determinant", "x"), "Error: not a matrix; write it like [[1, 2], [3, 4]]"),
    (("evaluate", "(1).__class__.__base__.__subclasses__()[0](1)"), "Error: "),
]


def test_errors_can_be_read(sympy):
    results = sympy(*(call for call, _ in ERRORS))
    for result, (_, expected) in zip(results, ERRORS, strict=True):
        assert result.text.startswith(expected)
        assert result.status == ToolStatus.ERROR
        assert "Traceback" not in result.text


def test_endless_computations_are_ended(sympy):
    (result,) = sympy(("evaluate", "9**9**9**9"), timeout_s=1.0, memory_mb=256)
    assert result.status in (ToolStatus.TIMEOUT, ToolStatus.ERROR)
    assert "no result within 1 s" in result.text or "too much memory" in result.text


def test_long_results_are_cut(sympy):
    (result,) = sympy(("expand", "(a + b + c + d)^20"))
    assert result.text.endswith("characters cut)")
    assert len(result.text) < 4100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x^2 = 4", "Eq(x^2, 4)"),
        ("x == 4", "Eq(x, 4)"),
        ("x^2 = 4, x != 2 and f(y \u2260 1) ! = z", "Eq(x^2, 4), Ne(x, 2), Eq(f(Ne(y, 1)) !, z)"),
        ("x + y = 3; x - y = 1.", "Eq(x + y, 3), Eq(x - y, 1)"),
        ("x = 1 and y = 2", "Eq(x, 1), Eq(y, 2)"),
        ("solve([x = 1, y <= 2], [x, y])", "solve([Eq(x, 1), y <= 2], [x, y])"),
        ("limit(1/x, x, 0, dir='+')", "limit(1/x, x, 0, dir='+')"),
        (r"$\sqrt[3]{27} + \frac{1}{\frac{2}{3}}$", "root(27, 3) + ((1)/(((2)/(3))))"),
        (r"\left(\frac{a}{b}\right)^{2} \cdot \pi", "(((a)/(b)))^(2) *  pi"),
        ("2x² \u2212 3 \u00d7 4", "2x^(2) - 3 * 4"),
        ("6.02 \u00d7 10²³", "6.02 * 10^(23)"),
        ("1,000*(1 + 0.05)^2 - 1,234,567.8", "1000*(1 + 0.05)^2 - 1234567.8"),
        ("Sum(k, (k,1,100)) + gcd(1,100), 2, 300", "Sum(k, (k,1,100)) + gcd(1,100), 2, 300"),
        ("x = 5,000; y = 3", "Eq(x, 5000), Eq(y, 3)"),
        (r"\lvert x \rvert", "Abs( x )"),
        ("2√3 + √x² + √(2)", "2sqrt(3) + sqrt(x)^(2) + sqrt(2)"),
        (r"\sqrt2 + \sqrt x + \sqrt{2}", "sqrt(2) +  sqrt(x) +  sqrt(2)"),
        ("sin 30° + x/2.5° + (a + b)°", "sin (30*pi/180) + x/(2.5*pi/180) + (a + b)*pi/180"),
        ("|x - 1| = 2", "Eq(Abs(x - 1), 2)"),
    ],
)
def test_latex_and_unicode_become_sympys_notation(text, expected):
    assert to_sympy(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the expression is empty"),
        ("1+" * 6000 + "1", "longer than 10000 characters"),
        ("d/dx x^2", r"`d/dx`: use the operation differentiate, or diff\(\.\.\., x\)"),
        (r"\frac{d}{dx}(x^3)", "use the operation differentiate"),
        ("2*(x + 1", r"`2\*\(x \+ 1`: '\(' is never closed"),
        ("x)", r"'\)' has no matching"),
        ("[x)", r"'\)' has no matching"),
        ("x =", "one side of the equation is missing"),
        ("a = b = c", "two `=` in one equation"),
        (r"\frac{1", "is never closed"),
    ],
)
def test_notation_that_cannot_be_read_is_explained(text, expected):
    with pytest.raises(ToolError, match=expected):
        to_sympy(text)
