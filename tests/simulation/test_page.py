"""The page of a history in which an invariant breaks: what led there, and that the history is as without."""

import json
import re

from tests.simulation import sought
from tests.simulation.__main__ import main
from tests.simulation.page import statement_of
from tests.simulation.planted import with_the_same_signature

NAME = "majority_of_five_is_two"


def test_a_page_says_which_invariant_broke_and_what_led_there(monkeypatch, tmp_path, capsys):
    patch = with_the_same_signature(monkeypatch.setattr)
    monkeypatch.setattr(sought, "with_the_same_signature", lambda _: patch)
    path = tmp_path / "story.html"
    assert main(["--mistake", NAME, "--page", str(path)]) == 1

    mistake = next(mistake for mistake in sought.SOUGHT if mistake.__name__ == NAME)
    without = sought.run(mistake, sought.known()[NAME])
    assert without.trace_hash in capsys.readouterr().out
    (story,) = re.findall(r"^const STORY = (.*);$", path.read_text(), re.MULTILINE)
    told = [line["sentence"] for line in json.loads(story)["lines"] if line["sentence"]]
    leader, position, term = re.match(
        r"I-3: member (\d) commits (\d+) in term (\d+), which the disks of members", without.violation
    ).groups()
    expected = [
        rf"member {leader} stands for term {term}, and asks member \d for its vote\.",
        rf"member \d votes for member {leader} in term {term}\.",
        rf"member {leader} tells member \d that it leads term {term}\.",
        rf"It is the last that member {leader} hears of member \d\.",
        rf"member \d reports to member {leader} that it has the log to {position}\.",
        re.escape(f"{without.violation}. {statement_of('I-3')}"),
    ]
    places = [next(i for i, text in enumerate(told) if re.fullmatch(each, text)) for each in expected]
    assert places == sorted(places) and places[-1] == len(told) - 1
    assert statement_of("I-3").startswith("I-3 says: What counts for a commit is on disk")


def test_the_statement_of_each_invariant_ends_before_the_next_one():
    assert statement_of("I-17").endswith("not meant for it.") and statement_of("I-" + "99") == ""
