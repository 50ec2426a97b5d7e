"""Class names in any script have a font."""

from matplotlib.font_manager import FontProperties, findfont, get_font

from resnet_fn.report.fonts import font_families, with_codes

BY_STIX = chr(0xE00A)  # a letter that only a font which comes with matplotlib has, STIXNonUnicode
BY_NONE = chr(0x10FFFD)  # of private use


def test_a_font_that_has_the_letters_is_added():
    first = FontProperties().get_family()
    assert font_families(["run 1", "é"]) == (first, "")
    families, missing = font_families(["a" + BY_STIX, BY_NONE])
    assert (families[: len(first)], missing) == (first, BY_NONE)
    added = {
        letter for family in families[1:] for letter in get_font(findfont(family)).get_charmap()
    }
    assert ord(BY_STIX) in added


def test_the_font_of_boxes_is_not_taken():
    families, _ = font_families([BY_NONE])
    assert not any("Last Resort" in family for family in families)


def test_letters_without_a_font_become_their_codes():
    assert with_codes("猫 and cat", "猫") == r"\u732b and cat"
