import warnings
from concurrent.futures import ThreadPoolExecutor

from resnet_fn.data.preprocess import open_rgb
from resnet_fn.data.sources.scan import examine


def test_threads_that_decode_leave_the_processs_warnings_alone(make_photograph, encode, tmp_path):
    """Filters that are changed and put back in threads end up changed: one puts back what another had changed."""
    data = encode(make_photograph(1))
    (tmp_path / "a.jpg").write_bytes(data)
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda _: (open_rgb(data), examine(str(tmp_path / "a.jpg")), list(warnings.filters)), range(2000))
        )
    assert warnings.filters == before
