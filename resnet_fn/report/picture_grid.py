"""The page's pictures: the mistakes, and a gallery of each class."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from resnet_fn.report.html_parts import image, number, text


class Pictures(NamedTuple):
    """Image files: one for each mistake, the same with a heat map, and those of the gallery in turn."""

    mistakes: Sequence[bytes] = ()
    heatmaps: Sequence[bytes] = ()
    gallery: Sequence[bytes] = ()


def mistakes(report: dict[str, Any], pictures: Pictures) -> list[str]:
    """The most confident mistakes, each beside the evidence for it (of "not X", for X)."""
    if not report["mistakes"]:
        return ["<h2>Mistakes</h2>", "<p>None.</p>"]
    cells = [
        f'<figure><div class="pair">{image(row["name"], picture)}{image("where the evidence lies", heat)}</div>'
        f"<figcaption><b>{text(row['label'])} → {text(row['prediction'])}</b> "
        f"{number(row['confidence'], '.2%')}<br><span>{text(row['name'])}</span></figcaption></figure>"
        for row, picture, heat in zip(report["mistakes"], pictures.mistakes, pictures.heatmaps, strict=True)
    ]
    of_none = ' Beside "not X" it is the evidence for X, which was too little.' if "map" in report else ""
    return [
        f"<h2>The {len(cells)} most confident mistakes</h2>",
        "<p>True class → prediction, its confidence, and the image's name. Red is where the evidence for the "
        f"prediction lies (Grad-CAM, arXiv 1610.02391, of the last stage).{of_none}</p>",
        '<div class="grid mistakes">' + "\n".join(cells) + "</div>",
    ]


def gallery(report: dict[str, Any], pictures: Pictures) -> list[str]:
    """Class by class, the surest images and the worst."""
    shown, there = report["gallery"], sum(row["support"] > 0 for row in report["classes"])
    which = "each class" if len(shown) == there else f"the {len(shown)} classes with the lowest F1"
    parts = [
        "<h2>Class by class</h2>",
        f"<p>Of {which} the images that the net is surest of, then those that it would least call so; below each the "
        "probability of its own class, and where that is not said, the prediction.</p>",
    ]
    files = iter(pictures.gallery)
    for row in shown:
        cells = []
        for sample in row["samples"]:
            words = number(sample["probability"], ".2%")
            words += "" if sample["right"] else f" <b>→ {text(sample['prediction'])}</b>"
            kind = "" if sample["right"] else ' class="wrong"'
            picture = image(sample["name"], next(files))
            cells.append(f"<figure{kind}>{picture}<figcaption>{words}</figcaption></figure>")
        parts.append(f'<h3>{text(row["class"])}</h3><div class="grid gallery">' + "\n".join(cells) + "</div>")
    return parts
