"""Pieces of the page."""

from resnet_fn.report.page import image, number, table, text


def test_text_is_escaped_and_numbers_that_are_none_are_said():
    assert text('a<b & "c"') == "a&lt;b &amp; &quot;c&quot;"
    assert (number(0.12345), number(0.5, ".0%"), number(None)) == ("0.1235", "50%", "not finite")


def test_a_table_has_its_text_columns_on_the_left():
    made = table(("a", "b"), [("<b>x</b>", "1")])
    assert '<td class="text"><b>x</b></td><td >1</td>' in made
    assert made.count("<th") == 3  # thead too


def test_an_image_is_inside_the_page():
    assert image("a&b", b"\x89PNG") == '<img alt="a&amp;b" src="data:image/png;base64,iVBORw==">'
    assert "data:image/jpeg;" in image("", b"\xff\xd8")
