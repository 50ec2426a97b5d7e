"""The data stage: this package's pixels are PIL's and torchvision's, and what is known to differ is told apart."""

from resnet_fn.parity.pixels import PixelDifference, data_stage, sample_files, table


def test_our_pixels_are_pils_and_torchvisions():
    decode, evaluation, training, normalise, fast = stages = data_stage([])
    for exact in (decode, evaluation, training):
        assert (exact.largest, exact.differing, exact.limit) == (0, 0, 0)
    assert 0 < normalise.largest < 2e-6
    assert fast.limit is None
    assert 0 < fast.mean < 3  # of 255
    assert all(stage.passes for stage in stages)
    assert [line.split()[-1] for line in table(stages).splitlines()] == ["verdict", "ok", "ok", "ok", "ok", "known"]
    assert data_stage(sample_files()) == stages


def test_what_is_beyond_its_limit_differs():
    wrong = PixelDifference("decode, C++", "PIL", largest=1.0, mean=0.1, differing=0.5, limit=0.0)
    assert not wrong.passes
    assert table([wrong]).endswith("  1.0e+00   1.0e-01     50.0%    0e+00  DIFFERS")
