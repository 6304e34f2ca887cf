"""Every correction is needed and works: with it the emulator does what AWS does, without it what upstream does."""

import pytest

from scripts.local.corrections import NAMES, CorrectionError, apply_all, upstream
from tests.emulator.probes import PROBES


def test_every_correction_has_a_probe():
    assert set(PROBES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_corrected_like_aws(corrected, name):
    assert PROBES[name].look(corrected) == PROBES[name].aws


@pytest.mark.parametrize("name", NAMES)
def test_still_needed(plain, name):
    seen = PROBES[name].look(plain)
    assert seen in PROBES[name].upstream, f"upstream changed: remove or rewrite the correction {name!r}"


def test_an_unknown_correction_is_refused():
    with pytest.raises(CorrectionError, match="No such correction: nothing"):
        apply_all(frozenset({"nothing"}))


def test_a_changed_text_is_refused_with_the_correction_and_the_version():
    with pytest.raises(CorrectionError, match=r"'mine'.*1\.5\.33"):
        upstream.changed("mine", "somewhere", "text of today", ("text of yesterday", "new"))
