"""This module opens an image file's bytes with PIL, in the formats of photographs only."""

import errno
import functools
import io
import struct
import zlib
from typing import Any

# PIL has more formats, and runs Ghostscript for one of them (EPS), whatever the file's name is.
# JPEG includes MPO.
_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "PPM", "JPEG2000", "AVIF")
MOST_PIXELS = 178_956_970  # PIL's own limit
MOST_BYTES = 8 * MOST_PIXELS  # of a file: four channels of 16 bits, not compressed
DAMAGED = "cut or damaged"
NO_IMAGE = "not an image"
_PNG = b"\x89PNG\r\n\x1a\n"
_TEXT = (
    b"tEXt",
    b"zTXt",
    b"iTXt",
    b"iCCP",
)  # chunks of a PNG that PIL decompresses while it opens the file
_ANCILLARY = 0x20  # bit of a chunk's first letter: a reader may leave out the chunk
# What is often found in a file that is named like an image: where its bytes are, the bytes, what it
# is, and a fix.
_OTHERS = (
    (0, b"%!PS", "an EPS file", "convert it to PNG"),
    (0, b"%PDF", "a PDF file", "convert it to PNG"),
    (0, b"8BPS", "a Photoshop file", "convert it to PNG"),
    (4, b"ftypavif", "an AVIF image", "install a newer Pillow, or convert it to JPEG"),
    (4, b"ftyp", "a HEIC image or a video", "convert it to JPEG"),
    (0, b"<svg", "an SVG drawing", "convert it to PNG"),
    (0, b"<?xml", "an SVG drawing or other XML", "convert it to PNG"),
    (0, b"<", "a web page", "download the image again"),
    (0, b"version https://git-lfs", "a pointer of Git LFS", "run git lfs pull"),
)
# Errors of the operating system that belong to a path. Others, such as EMFILE, ENOMEM, EIO or
# ESTALE, come from a limit, the disk or the network, and can pass.
_OF_A_PATH = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENXIO,
    errno.ENODEV,
    errno.EINVAL,
    errno.EFBIG,
)


def is_files_fault(error: Exception) -> bool:
    """Return whether an error while a file is read or decoded is the file's own fault.

    A lack of memory, descriptors or threads and errors of the disk or network are not.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _OF_A_PATH
    if isinstance(error, MemoryError | ImportError):
        return False
    # Pillow's decoders report a lack of memory as an OSError without a number, and Python a lack of
    # threads as a RuntimeError.
    lacks = ("out of memory", "can't start new thread")
    return not any(lack in str(error) for lack in lacks)


def raise_unless_files_fault(error: OSError, path: str) -> None:
    """Raise an OSError with a fix if a file cannot be read for a reason outside of the file."""
    if is_files_fault(error):
        return
    fix = "free some and start the command again"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        fix = "raise the limit (ulimit -n), and start the command again"
    elif error.errno != errno.ENOMEM:
        fix = "check the disk or network, and start the command again"
    text = f"{error.strerror}, which is not the fault of this file; {fix}"
    raise OSError(error.errno, text, path) from None


@functools.cache
def image_formats() -> tuple[str, ...]:
    """Return PIL's names of the formats that are opened.

    AVIF is missing if the installed Pillow lacks it.
    """
    from PIL import Image  # imported here, because this import slows the start of commands

    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def open_image(data: bytes) -> Any:
    """Open a file's bytes as a PIL image, whose pixels PIL decodes later.

    Raises what PIL raises, for example UnidentifiedImageError if the format is not one of
    `image_formats`.
    """
    from PIL import Image

    return Image.open(io.BytesIO(without_bad_chunks(data)), formats=image_formats())


def describe_unopened(data: bytes) -> str:
    """Return why `open_image` cannot identify a file's bytes, for example "not an image"."""
    if not data:
        return "empty"
    if data.startswith((b"\xff\xd8", _PNG)):
        return DAMAGED  # in its header
    start = data[:64].lstrip()
    for offset, begin, what, fix in _OTHERS:
        if start[offset:].startswith(begin):
            return f"{what}, which is not read; {fix}"
    return NO_IMAGE


def without_bad_chunks(data: bytes) -> bytes:
    """Return a file's bytes. A PNG is returned without the metadata that would stop PIL, such as
    megabytes of text.

    PIL rejects a whole PNG for compressed text of more than 1 MB, for 64 MB of text together, and
    for a text that is cut or has a wrong checksum. None of this changes pixels, except an
    orientation in such a text of XMP, which is lost. At most 1 MB is decompressed at a time, and
    65 MB together.

    Raises ValueError if EXIF data are damaged, because the orientation is in them.
    """
    if not data.startswith(_PNG):
        return data
    from PIL.PngImagePlugin import MAX_TEXT_MEMORY

    kept = []  # parts of `data`
    begin = 0  # where the next part begins
    total = 0  # bytes of text so far
    start = len(_PNG)
    while start + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, start)
        end = start + 12 + length
        if name == b"IEND":
            break
        if name[0] & _ANCILLARY:
            content = data[start + 8 : end - 4]
            checksum = zlib.crc32(content, zlib.crc32(name))
            whole = end <= len(data) and checksum == int.from_bytes(data[end - 4 : end])
            if name == b"eXIf" and not whole:
                raise ValueError(DAMAGED)
            is_text = whole and name in _TEXT
            size = _text_size(name, content) if is_text and total <= MAX_TEXT_MEMORY else 0
            total += abs(size)
            if not whole or size < 0 or (is_text and total > MAX_TEXT_MEMORY):
                kept.append(data[begin:start])
                begin = min(end, len(data))
        start = end
    return b"".join([*kept, data[begin:]]) if kept else data


def _text_size(name: bytes, content: bytes) -> int:
    """Return how many bytes of text a PNG's chunk has, negative if PIL would reject the chunk."""
    from PIL.PngImagePlugin import MAX_TEXT_CHUNK

    text = content.partition(b"\0")[2]  # after the keyword
    if name == b"iTXt":
        is_packed = text[:2] == b"\1\0"
        text = text[2:].split(b"\0", 2)[-1]
    else:
        is_packed = name != b"tEXt"
        if is_packed and text[:1] != b"\0":  # another method of compression than PNG's only one
            return -1
        text = text[1:]
    if not is_packed:
        return len(content)
    unpacker = zlib.decompressobj()
    try:
        size = len(unpacker.decompress(text, MAX_TEXT_CHUNK))
    except zlib.error:
        return 0  # PIL takes this for an empty text
    return -size if unpacker.unconsumed_tail else size
