from agent_rl.launch.characters import named, one_line


def test_what_a_terminal_obeys_is_named() -> None:
    text = "a\x1b[2J\x07\x9b1m\r\u202e\ud800\u2028\tb\nc"
    shown = named(text)
    assert not set(shown) & set("\x1b\x07\x9b\r\u202e\ud800\u2028")
    assert shown.startswith("a\u27e8U+001B\u27e9[2J")
    assert shown.endswith("\tb\nc")
    shown.encode()


def test_one_line_of_a_text_of_any_length() -> None:
    assert one_line("a\n  b\tc", 10) == "a b c"
    assert one_line("x" * 10_000_000, 5) == "xxxxx\u2026"
    assert one_line("a\r\nb\x1b", 10) == "a b\u27e8U+001B\u27e9"
