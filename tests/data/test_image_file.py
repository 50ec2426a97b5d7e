"""Decoding: modes, orientation, bad chunks, bombs, and a reason for each failure."""

import errno
import io
import os
import struct
import time
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from resnet_fn.data.image_file import image_formats, is_files_fault, open_image
from resnet_fn.data.preprocess import open_upright
from resnet_fn.data.sources.files import ENDINGS
from resnet_fn.data.sources.scan import examine
from resnet_fn.evaluation.picture import open_picture

MEGABYTES = b"a " * 1_500_000


def chunk(name, content, crc=None):
    crc = zlib.crc32(name + content) if crc is None else crc
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", crc)


def packed(text):
    return zlib.compress(text, 9)


@pytest.fixture
def png(make_photograph, encode):
    """png(chunk, last=False) is a PNG file with one more chunk, before or after its pixels."""
    whole = encode(make_photograph(3, 50, 40), "PNG")

    def make(more=b"", last=False):
        place = len(whole) - 12 if last else 33  # before IEND, or after IHDR
        return whole[:place] + more + whole[place:]

    return make


def test_every_listed_ending_is_opened():
    Image.init()
    kinds = Image.registered_extensions()
    for ending in ENDINGS if features.check("avif") else {*ENDINGS} - {".avif"}:
        kind = kinds[ending]
        assert kind in image_formats()
        file = io.BytesIO()
        Image.new("RGB", (20, 10), (200, 10, 10)).save(file, kind)
        assert open_image(file.getvalue()).size == (20, 10), ending


def test_a_file_of_two_pictures_can_be_opened(make_photograph):
    file = io.BytesIO()
    first, second = (make_photograph(number, 40, 30) for number in (1, 2))
    first.save(file, "MPO", save_all=True, append_images=[second])
    assert open_upright(file.getvalue()).size == (40, 30)


def test_no_program_runs_for_a_file(tmp_path, monkeypatch, raises_line):
    """PIL calls Ghostscript for an EPS, whatever its name is."""
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\necho $* >> {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    text = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    for name, what in (("x.jpg", "an EPS file"), ("x.png", "an EPS file"), ("x.eps", "convert")):
        Path(name).write_text(text)
        assert what in examine(name)[1]
        with raises_line(f"{name}: cannot be read (", what):
            open_picture(name, "RGB")
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "a HEIC image"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"%PDF-1.7", "a PDF file"),
        (b"no picture", "not an image"),
    ],
)
def test_the_error_says_what_a_non_image_is(data, what, raises_line):
    Path("photo.jpg").write_bytes(data)
    assert what in examine("photo.jpg")[1]
    with raises_line("photo.jpg: cannot be read (", what, "fix or remove the file"):
        open_picture("photo.jpg", "RGB")


BAD_CHUNKS = {
    "zTXt": chunk(b"zTXt", b"Comment\0\0" + packed(MEGABYTES)),
    "iTXt": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + packed(MEGABYTES)),
    "iCCP": chunk(b"iCCP", b"profile\0\0" + packed(MEGABYTES)),
    "much": chunk(b"tEXt", b"Comment\0" + MEGABYTES) * 23,  # 69 MB of text that is not packed
    "method": chunk(b"zTXt", b"Comment\0\7" + packed(b"text")),
    "checksum": chunk(b"tEXt", b"Comment\0text", crc=1),
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_text_is_no_fault_of_a_png(name, last, png):
    data = png(BAD_CHUNKS[name], last)
    Path("a.png").write_bytes(data)
    assert examine("a.png")[:2] == (len(data), "")
    assert open_upright(data).tobytes() == open_upright(png()).tobytes()


def test_a_png_cut_after_its_pixels_is_valid(png):
    whole = png(chunk(b"iTXt", b"Comment\0\0\0\0\0" + b"text " * 1000), last=True)
    file = Path("a.png")
    for end in (13, 100, 5000):  # of 5 KB of text and IEND, which are last
        file.write_bytes(whole[:-end])
        assert examine("a.png")[1] == ""
        assert open_upright(whole[:-end]).tobytes() == open_upright(png()).tobytes()
    file.write_bytes(png()[:-60])  # in its pixels
    assert examine("a.png")[1] == "cut or damaged"


def test_a_png_with_much_text_keeps_its_orientation(png):
    turned = chunk(b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="6"/>')
    for more in (turned, turned + BAD_CHUNKS["zTXt"], BAD_CHUNKS["iTXt"] + turned):
        assert open_upright(png(more)).size == open_upright(png()).size[::-1]


def test_a_text_bomb_takes_no_memory(png):
    """Kilobytes that unpack to 200 MB."""
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(200)) + packer.flush()
    data = png(chunk(b"zTXt", b"Comment\0\0" + bomb))
    tracemalloc.start()
    try:
        assert np.asarray(open_upright(data)).shape[2] == 3
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("last", [False, True])
def test_a_png_with_damaged_exif_is_an_error(last, png, raises_line):
    """Its orientation is in them."""
    exif = Image.Exif()
    exif[0x0112] = 6
    content = exif.tobytes().removeprefix(b"Exif\0\0")
    good, bad = (png(chunk(b"eXIf", content, crc), last) for crc in (None, 1))
    assert open_upright(good).size == open_upright(png()).size[::-1]
    Path("a.png").write_bytes(bad)
    assert examine("a.png")[1] == "cut or damaged"
    with raises_line("a.png: cannot be read (cut or damaged)"):
        open_picture("a.png", "RGB")


@pytest.mark.parametrize("megabytes", [1, 3])
def test_many_texts_are_not_all_unpacked(megabytes, png):
    """Each of a kilobyte or three, in 12 MB; PIL accepts those of at most 1 MB."""
    text = chunk(b"zTXt", b"Comment\0\0" + packed(bytes(megabytes * 2**20 - 64)))
    data = png(text * (12_000_000 // len(text)))
    start = time.process_time()
    assert open_upright(data).tobytes() == open_upright(png()).tobytes()
    assert time.process_time() - start < 0.6


def test_system_errors_are_not_a_files_fault():
    of_paths = ["ENOENT", "EACCES", "ELOOP", "ENAMETOOLONG", "EISDIR"]
    of_systems = ["EMFILE", "ENFILE", "ENOMEM", "EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "ENOTCONN"]
    for name in (*of_paths, *of_systems):
        assert is_files_fault(OSError(getattr(errno, name), "text")) == (name in of_paths), name
    assert not is_files_fault(MemoryError())
    assert not is_files_fault(RuntimeError("can't start new thread"))
