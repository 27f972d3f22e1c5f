from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_rl.rewards.scorers.math.numeric import extract_number, numeric_match, parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18.00", "18"),
        (".5", "1/2"),
        ("\u22127", "-7"),
        ("- 7", "-7"),
        ("-$5", "-5"),
        ("US$18", "18"),
        ("Rs. 500", "500"),
        ("$1,234.50", "2469/2"),
        ("1,234,567", "1234567"),
        ("1,00,000", "100000"),
        ("1\u202f234\u202f567", "1234567"),
        ("1{,}234", "1234"),
        ("50%", "50"),
        (r"18\%", "18"),
        ("42 km/h", "42"),
        ("5 m^2", "5"),
        ("42 (forty-two)", "42"),
        ("18\u5143\u3002", "18"),
        ("\uff14\uff12", "42"),
        ("3 / 4", "3/4"),
        ("2\u00bd", "5/2"),
        (r"-\dfrac{3}{4}", "-3/4"),
        (r"2\frac{1}{2}", "5/2"),
        ("1.5E-3", "3/2000"),
        (r"1.5 \times 10^{-3}", "3/2000"),
        ("$1.5 billion", "1500000000"),
        ("$18$", "18"),
        ("**42**", "42"),
        (r"\text{42 clips}", "42"),
        ("1e100", str(10**100)),
    ],
)
def test_numbers_are_parsed_in_every_notation(text, value):
    assert parse_number(text) == Fraction(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "$",
        "--7",
        "1/0",
        "3,5",
        "1,2345",
        "1_000",
        "0x10",
        "2+3",
        "1/2/2024",
        "5 apples and 3 pears",
        "\u0661\u0662",
        "1e101",
        "1e999999999",
        "9" * 101,
    ],
)
def test_text_without_a_number_gives_none(text):
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("answer", "ground_truth", "equal"),
    [
        ("$18.00", 18, True),
        ("-18", 18, False),
        ("18", 18.0, True),
        ("0.5", Fraction(1, 2), True),
        ("0.1", Decimal("0.1"), True),
        ("0.1", 0.1, True),
        ("50%", "50", True),
        ("0.5", "50%", False),
        ("The answer is 42.", "6*7 = <<6*7=42>>42\n#### 42", True),
        (None, "18", False),
        ("no idea", "18", False),
        # rounding: a decimal with two places and two digits stands for what rounds to it, on either side
        ("0.33", "1/3", True),
        ("0.3", "1/3", False),
        ("0.3332", "1/3", False),
        ("3.3333333", "3.33", True),
        ("0.00", "0.004", False),
        # integers are exact however large
        ("18.01", "18", False),
        ("12345678901234567891", "12345678901234567890", False),
        # binary dust of a computed answer
        ("17.999999999999996", "18", True),
        ("17.9999999", "18", False),
        ("0.30000000000000004", "0.3", True),
    ],
)
def test_nearly_equal_numbers_match(answer, ground_truth, equal):
    assert numeric_match(answer, ground_truth) is equal


@pytest.mark.parametrize(
    "ground_truth",
    [None, "", "Paris 2024", "1,8", True, float("nan"), float("inf"), ["42"], {"value": 42}, b"42", 10**200],
)
def test_a_ground_truth_that_is_no_number(ground_truth):
    for answer in (None, "42"):
        with pytest.raises(ValueError, match="ground truth is not a number"):
            numeric_match(answer, ground_truth)


@given(st.text(max_size=200))
def test_any_text_can_be_read(text):
    number = parse_number(text)
    assert number is None or extract_number(text) is not None
    numeric_match(text, 1)


@given(st.integers(-(10**12), 10**12))
def test_every_integer_is_itself_and_nothing_else(value):
    for written in (str(value), f"{value:,}", f"{value}.00", f"The answer is {value}."):
        assert numeric_match(written, value)
        assert not numeric_match(written, value + 1)


@given(st.fractions(max_denominator=10**6))
def test_fractions_are_exact(value):
    assert parse_number(f"{value.numerator}/{value.denominator}") == value
