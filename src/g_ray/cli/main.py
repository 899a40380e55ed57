"""Entry point: parse, run, and turn user errors into one line."""


def main() -> int:
    return 0
