"""What a tool prints does not spoil what the command prints."""

from __future__ import annotations

import sys
import threading

from scripts.commands.toolprint import tools_print_to_stderr


def test_what_a_tool_prints_goes_to_stderr(capsys):
    with tools_print_to_stderr():
        caller = threading.Thread(target=lambda: sys.stdout.write("from a tool\n"), name="signalbox-3")
        caller.start()
        caller.join()
        sys.stdout.write("the answer\n")
    sys.stdout.write("and later\n")
    told = capsys.readouterr()
    assert told.out == "the answer\nand later\n"
    assert told.err == "from a tool\n"
