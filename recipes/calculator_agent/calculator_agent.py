"""Arithmetic in words, with a calculator that the agent calls in a YAML block, as in Danau5tin's calculator agent.

The numbers of operands, brackets, digits, operators and phrasings follow the statistics of the published sets
(github.com/Danau5tin/calculator_agent_rl at d109d20: 1,500 training and 158 held-out questions). This file
generates the questions; no expression occurs in both splits.
"""

import operator
import random
import re
from functools import reduce

import yaml

from agent_rl import Environment

OPERATIONS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}
WORDS = {"add": "plus", "subtract": "minus", "multiply": "times", "divide": "divided by"}
NOUNS = {"add": "sum of {} and {}", "subtract": "difference between {} and {}",
         "multiply": "product of {} and {}", "divide": "quotient of {} and {}"}  # fmt: skip
SHARES = {"add": 1463, "multiply": 1448, "divide": 994, "subtract": 744}
"""Number of occurrences of each operator in the published training rows."""
DIGITS = {3: 5, 5: 3, 4: 2, 2: 2, 6: 1}
"""Weight of each number of digits; only the order of these weights is published."""
OPERANDS = {
    "train": {2: 413, 3: 367, 4: 298, 5: 153, **dict.fromkeys(range(6, 15), 27), 15: 26},
    "test": {2: 24, 3: 26, 4: 68, 5: 39, 6: 1},
}
"""Published number of questions by number of operands; 6 to 15 operands have 269 questions together."""
DEPTHS = {"train": {0: 775, 1: 560, 2: 158, 3: 7}, "test": {0: 51, 1: 59, 2: 45, 3: 3}}
"""Published number of questions by depth of brackets; the counts for training were rounded to tens."""
INTEGERS, NEGATIVES = 56, 3
"""Numbers of held-out questions with an integer answer and with a negative answer."""
OPENINGS = (
    "What is {}?", "Calculate {}.", "Work out {}.", "How much is {}?", "Please compute {}.", "I need to know {}.",
    "Tell me what {} comes to.", "Find {}.",
)  # fmt: skip
CALL = re.compile(r"<calculator>(.*?)</calculator>", re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?%?")
TOLERANCE = 0.1
MAX_ERRORS = 2
"""Number of consecutive bad calls after which the episode ends."""
SMALLEST, LARGEST = 1, 1e15
"""Limits of the absolute value of a question's result."""


class CalculatorAgent(Environment):
    """Answer the question. To compute, write only a block like this, and wait for its output:
    <calculator>
    operation: add
    operands:
    - 12
    - operation: multiply
      operands:
      - 3
      - 40
    </calculator>
    The operations are add, subtract, multiply and divide. When you know the result, write: Answer: 132
    """

    def rows(self, split, seed):
        excluded = _expressions("test", seed) if split == "train" else []
        draw = random.Random(f"{seed}/{split}/words")
        for expression in _expressions(split, seed, excluded):
            yield {"prompt": draw.choice(OPENINGS).format(_in_words(expression, draw)), "expression": expression}

    def reset(self, expression, **row):
        self.expression, self.value, self.errors = expression, value_of(expression), 0

    def step(self, message):
        block = CALL.search(message)
        if block is None:
            return None
        try:
            result = value_of({} if "*" in block[1] else yaml.safe_load(block[1]))  # aliases can grow without limit
        except (yaml.YAMLError, ValueError, ArithmeticError, RecursionError) as error:
            self.errors += 1
            return None if self.errors == MAX_ERRORS else f"<error>{_line(error)}</error>"
        self.errors = 0
        return f"<output>{result}</output>"

    def get_reward(self):
        """Return 1 if the last number of the last message is the value, to within 0.1, otherwise 0."""
        numbers = NUMBER.findall(self.answer or "")
        return float(bool(numbers) and abs(_number(numbers[-1]) - self.value) <= TOLERANCE)

    def solve(self):
        output = self.say(f"<calculator>\n{yaml.safe_dump(self.expression, sort_keys=False)}</calculator>")
        return f"Answer: {output.removeprefix('<output>').removesuffix('</output>')}"


def value_of(node):
    """Return the value of a number, or of a mapping with an operation that is applied to its operands left to right.

    Raises:
        ValueError: the node is neither a number nor a valid mapping.
        ArithmeticError: a division by 0, or a number that is too large.
    """
    if isinstance(node, int | float) and not isinstance(node, bool):
        return float(node)
    if not isinstance(node, dict) or node.keys() != {"operation", "operands"} or node["operation"] not in [*OPERATIONS]:
        raise ValueError("Write an operation (add, subtract, multiply or divide) and its operands")
    if not isinstance(node["operands"], list) or len(node["operands"]) < 2:
        raise ValueError("Write at least two operands, each after a dash")
    return reduce(OPERATIONS[node["operation"]], map(value_of, node["operands"]))


def depth_of(node):
    """Return the depth of the brackets that the usual precedence of operators requires."""
    if not isinstance(node, dict):
        return 0
    return max(depth_of(each) + _is_bracketed(node, place) for place, each in enumerate(node["operands"]))


def _expressions(split, seed, excluded=()):
    """Return the expressions of a split, in random order and without the excluded ones."""
    draw = random.Random(f"{seed}/{split}/expressions")
    counts = [count for count, questions in OPERANDS[split].items() for _ in range(questions)]
    depths = [depth for depth, questions in DEPTHS[split].items() for _ in range(questions)]
    kinds = [(None, None)] * len(counts)
    if split == "test":
        kinds = [(place < INTEGERS, False) for place in range(len(counts))]
        draw.shuffle(kinds)
        for place in draw.sample(range(DEPTHS[split][2]), NEGATIVES):  # an expression with brackets can have any sign
            kinds[place] = (kinds[place][0], True)
    draw.shuffle(counts)
    expressions = []
    for depth, (is_integer, is_negative) in zip(sorted(depths, reverse=True), kinds, strict=True):
        count = next(count for count in counts if count >= (depth + 2 if depth else 2))
        counts.remove(count)
        while True:
            expression = _drawn(draw, count, depth)
            try:
                value = value_of(expression)
            except ZeroDivisionError:
                continue
            is_kind = is_integer in (None, value.is_integer()) and is_negative in (None, value < 0)
            is_new = expression not in expressions and expression not in excluded
            if is_kind and is_new and SMALLEST <= abs(value) <= LARGEST and depth_of(expression) == depth:
                break
        expressions.append(expression)
    draw.shuffle(expressions)
    return expressions


def _drawn(draw, count, depth):
    """Draw an expression with `count` operands, one of which contains brackets of the given depth."""
    inside = draw.randint(depth + 1, count - 1) if depth else 0
    operands = [_operand(draw) for _ in range(count - inside)]
    if depth:
        operands.insert(draw.randint(0, len(operands)), _drawn(draw, inside, depth - 1))
    signs = draw.choices(list(SHARES), list(SHARES.values()), k=len(operands) - 1)
    for level in (("multiply", "divide"), ("add", "subtract")):  # usual precedence
        terms, rest = operands[:1], []
        for sign, operand in zip(signs, operands[1:], strict=True):
            if sign in level:
                terms[-1] = {"operation": sign, "operands": [terms[-1], operand]}
            else:
                terms.append(operand)
                rest.append(sign)
        operands, signs = terms, rest
    return operands[0]


def _operand(draw):
    digits = draw.choices(list(DIGITS), list(DIGITS.values()))[0]
    return draw.randint(10 ** (digits - 1), 10**digits - 1)


def _in_words(node, draw, starts=True, ends=True):
    """Return an expression in words that can be read in only one way.

    The usual precedence applies between operators. "The sum of A and B" ends with its second operand, "the result of"
    ends with the question, and a comma ends every expression before it.

    Args:
        node: the expression.
        draw: the random number generator.
        starts, ends: whether the words begin the question, and whether the words end it.
    """
    if not isinstance(node, dict):
        return str(node)
    if draw.random() < 0.3 and not (starts and ends):
        return _as_noun(node)
    left, right = node["operands"]
    sign = WORDS[node["operation"]]
    if not _is_bracketed(node, 0):
        first = _in_words(left, draw, starts, False)
    elif starts and draw.random() < 0.7:
        first = f"{_in_words(left, draw, True, False)}, {draw.choice(('', 'then '))}".rstrip(" ")
    else:
        first = _as_noun(left)
    last = _in_words(right, draw, False, ends)
    if _is_bracketed(node, 1):
        is_result = ends and draw.random() < 0.5 and not last.startswith("the ")
        last = f"the result of {last}" if is_result else _as_noun(right)
    return f"{first} {sign} {last}"


def _as_noun(node):
    """Return an expression as a noun ("the sum of 1 and 2"), whose operands are nouns or numbers."""
    if not isinstance(node, dict):
        return str(node)
    return f"the {NOUNS[node['operation']].format(*map(_as_noun, node['operands']))}"


def _is_bracketed(node, place):
    """Whether the usual precedence requires brackets around a node's first (`place` 0) or second operand (1)."""
    operand = node["operands"][place]
    if not isinstance(operand, dict):
        return False
    outer, inner = (each["operation"] in ("multiply", "divide") for each in (node, operand))
    return inner < outer or (place == 1 and inner == outer)


def _number(text):
    value = float(text.rstrip("%").replace(",", ""))
    return value / 100 if text.endswith("%") else value


def _line(error):
    return str(error) if type(error) is ValueError else "The calculator cannot compute this"
