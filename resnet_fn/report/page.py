"""This module makes the HTML page of a report, which needs no other file and no network."""

import base64
import html
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from resnet_fn.config.declaration import CUSTOM
from resnet_fn.evaluation.metrics import SAID_FROM
from resnet_fn.report.plots import PANELS, colours_of_curves

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1c1c; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } img { max-width: 100%; }
.from, .hint { color: #555; margin: .2rem 0; } .hint { font-size: .85rem; } .facts { overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1.2rem 0; }
.tile { border: 1px solid #ddd; border-radius: 6px; padding: .5rem .8rem; flex: 1 1 6rem; }
.tile b { display: block; font-size: 1.35rem; } .tile span { color: #555; font-size: .85rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } thead th { vertical-align: bottom; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
thead th { position: sticky; top: 0; background: #fff; border-bottom: 2px solid #999; z-index: 1; }
.matrix { white-space: nowrap; } .matrix th { font-weight: normal; background: #fff; }
.matrix tbody th { position: sticky; left: 0; }
.matrix td { text-align: center; min-width: 1.75rem; padding: .15rem 0; border: 1px solid #fff; }
.matrix span { writing-mode: vertical-rl; transform: rotate(180deg); } .tall { max-height: 36rem; }
.scroll { overflow: auto; scrollbar-color: #999 #eee; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(var(--least), 1fr)); gap: 1rem .8rem; }
.curves { --least: 300px; } .mistakes { --least: 170px; } .gallery { --least: 100px; } .grid img { width: 100%; }
figure { margin: 0; } figcaption { font-size: .9rem; line-height: 1.35; overflow-wrap: anywhere; }
figcaption span { color: #555; } .pair { display: grid; grid-template-columns: 1fr 1fr; gap: 3px; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; padding: 0; list-style: none; }
.legend li { overflow-wrap: anywhere; }
.legend li::before { content: ""; display: inline-block; width: 1.6rem; margin-right: .4rem;
vertical-align: middle; border-top: 3px solid var(--colour); }
figure.wrong img { outline: 3px solid #c0504d; } figure.wrong figcaption { margin-top: 4px; }
figure img[src*="/png;"] { image-rendering: pixelated; } footer { color: #777; margin: 3rem 0 1rem; }
@media (max-width: 600px) {
  body { margin: 1rem auto; } th, td { padding: .15rem .2rem; font-size: .72rem; }
  td.text, .matrix tbody th { overflow-wrap: anywhere; white-space: normal; min-width: 4rem; }
  .dense th, .dense td { padding: .15rem .1rem; font-size: .66rem; } .dense th:not(.text) { writing-mode: vertical-rl; }
}
"""
# how an HTML document of this package begins
DOCUMENT = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width">'
)
_CURVES = (
    "<h2>Precision and recall</h2><p>A curve shows precision and recall of a class at "
    "different thresholds.</p>"
)
NO_CLASS = "no class"
_TABLE_UP_TO = 100  # most classes for which the page shows the confusion matrix
# Columns of the table of classes: title, key and format. If no class has a value, it is left out.
_CLASS_COLUMNS = (
    ("precision", "precision", ".4f"),
    ("recall", "recall", ".4f"),
    ("F1", "f1", ".4f"),
    ("support", "support", "d"),
    ("training images", "training_images", ".4g"),
    ("weight in the loss", "loss_weight", ".4g"),
    ("uses of an image per epoch", "times_seen", ".4g"),
    ("average precision", "average_precision", ".4f"),
)
# most rows and columns of a table that a narrow window shows without scrolling
_ROWS = 20
_COLUMNS = 11


class Pictures(NamedTuple):
    """The image files of a page."""

    mistakes: Sequence[bytes] = ()
    heatmaps: Sequence[bytes] = ()  # a heat map for each image of `mistakes`
    gallery: Sequence[bytes] = ()
    curves: Sequence[bytes] = ()  # plots of the run


def page(report: dict[str, Any], plots: dict[str, bytes], pictures: Pictures) -> str:
    """Return the HTML page of a report that `build_report` made, with the plots of `draw_all`."""
    made = report["checkpoint"]
    title = (
        "A net of your own" if made["model"] == CUSTOM else f"{made['model']} on {made['dataset']}"
    )
    body = [
        f"<h1>{text(title)}</h1>",
        f'<p class="from">run {text(made["run"])}, update {made["update"]}, {made["date"]}</p>',
        _tiles(report),
        *_facts(report),
        *_run(report, pictures),
        *_confusion(report),
        *_classes(report),
        *_curves(report, plots),
        *_calibration(report, plots),
        *mistakes(report, pictures),
        *gallery(report, pictures),
        "<footer>Every sample is counted once. predictions.csv has the prediction for each "
        "sample, and report.json has these metrics.</footer>",
    ]
    return document(title, body)


def document(title: str, body: Sequence[str], style: str = "") -> str:
    """Return an HTML document that needs no other file, with the CSS `style` added to the shared
    CSS.
    """
    return (
        f"{DOCUMENT}<title>{text(title)}</title>\n"
        f"<style>{_STYLE}{style}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _tiles(report: dict[str, Any]) -> str:
    metrics = {}
    if "top1" in report:
        metrics["top-1"] = number(report["top1"], ".2%")
    if "top5" in report and len(report["classes"]) > 5:
        metrics["top-5"] = number(report["top5"], ".2%")
    # A loss that was given to `fit` has no value for each sample, so the report shows
    # cross-entropy.
    loss = "cross-entropy" if report["recipe"]["loss"] == CUSTOM else "loss"
    metrics[loss] = number(report["loss"])
    metrics["macro F1"] = number(report["averages"]["macro"]["f1"])
    if report["mean_average_precision"] is not None:
        metrics["mean average precision"] = number(report["mean_average_precision"])
    if report["calibration"]:
        metrics["calibration error"] = number(report["calibration"]["error"])
    samples = "validation " * report["data"]["validates"] + _samples(report)
    metrics[samples] = f"{report['count']:,}"
    tiles = (
        f'<div class="tile"><b>{value}</b><span>{name}</span></div>'
        for name, value in metrics.items()
    )
    return '<div class="tiles">' + "".join(tiles) + "</div>"


def _samples(report: dict[str, Any]) -> str:
    return "samples" if report["recipe"]["dataset"] == CUSTOM else "images"


def _facts(report: dict[str, Any]) -> list[str]:
    data = report["data"]
    options = report["options"]
    recipe = report["recipe"]
    trained = bool(data["training_images"] and data["validates"])  # not other images
    images = f"{data['training_images']:,} training {_samples(report)}, " * trained
    folder = f"; {data['folder']}" * bool(data["folder"])
    pixels = f"{options['image_size']} pixels, " * bool(options["image_size"])  # 0: no images
    averaged = ", averaged weights (EMA)" * options["ema"]
    data_set = f"{recipe['dataset']}: {images}{len(report['classes'])} classes{folder}"
    used = (
        f"{recipe['name']}: {recipe['epochs']} epochs, batch size {recipe['batch_size']}, "
        f"{recipe['optimizer']}, learning rate {recipe['learning_rate']:g}, seed {recipe['seed']}"
    )
    lines = (
        f"<b>data</b>: {text(data_set)}",
        f"<b>recipe</b>: {text(used)}",
        f"<b>scored</b>: {pixels}test-time augmentation {options['tta']}{averaged}",
    )
    settings = table(
        ("setting", "value"), [(text(name), text(value)) for name, value in recipe.items()], 2
    )
    return [
        f'<p class="facts">{"<br>".join(lines)}</p>',
        f"<details><summary>All settings</summary>{settings}</details>",
    ]


def _run(report: dict[str, Any], pictures: Pictures) -> list[str]:
    if not pictures.curves:
        return []
    images = (
        image(f"curves of the {panel[0]}", file)
        for panel, file in zip(PANELS, pictures.curves, strict=True)
    )
    return [
        "<h2>The run</h2><p>The dotted line marks the update that this report evaluates.</p>",
        f'<div class="grid curves">{"".join(images)}</div>',
    ]


def _calibration(report: dict[str, Any], plots: dict[str, bytes]) -> list[str]:
    if not report["calibration"]:
        return []
    parts = ["<h2>Calibration</h2>"]
    if smoothing := report["checkpoint"]["label_smoothing"]:
        parts.append(
            f"<p>Label smoothing {smoothing:g} in training lowers the confidence below the "
            "accuracy.</p>"
        )
    if "reliability" in plots:
        return [*parts, image("reliability diagram", plots["reliability"])]
    rows = []
    for row in report["calibration"]["bins"]:
        means = (number(row[key]) if row["count"] else "" for key in ("confidence", "accuracy"))
        rows.append((f"{row['from']:.2f} to {row['to']:.2f}", str(row["count"]), *means))
    return [*parts, table(("confidence", "samples", "mean confidence", "accuracy"), rows)]


def _confusion(report: dict[str, Any]) -> list[str]:
    if not report["calibration"]:
        return [
            "<p>An image can have any number of classes. The net predicts each class whose "
            f"probability is {SAID_FROM} or more.</p>"
        ]
    names = [text(row["name"]) for row in report["classes"]]
    parts = ["<h2>Confusion matrix</h2>"]
    if len(names) > _TABLE_UP_TO:
        parts.append(
            "<p>Too large here. report.json has the matrix, or confused pairs for over 1,000 "
            "classes.</p>"
        )
    else:
        parts.append("<p>Rows are true classes, and columns are predicted classes.</p>")
        upright = max(len(row["name"]) for row in report["classes"]) > 3
        head = "".join(f"<th>{f'<span>{name}</span>' if upright else name}</th>" for name in names)
        matrix = f'<table class="matrix"><thead><tr><th></th>{head}</tr></thead><tbody>'
        for row, (name, counts) in enumerate(zip(names, report["confusion"], strict=True)):
            matrix += f"<tr><th>{name}</th>"
            for column, count in enumerate(counts):
                matrix += _count(count, sum(counts), row == column)
            matrix += "</tr>"
        parts.append(scrolling(f"{matrix}</tbody></table>", len(names), len(names)))
    if report["confused"]:
        parts.append("<h2>Most often confused</h2>")
        pairs = [
            (text(row["label"]), text(row["prediction"]), str(row["count"]))
            for row in report["confused"][:20]
        ]
        parts.append(table(("true", "predicted", "samples"), pairs, text_columns=2))
    return parts


def _count(count: int, of_class: int, right: bool) -> str:
    if not count:
        return "<td></td>"
    share = count / of_class
    colour = (
        f"background: rgb({'59 111 182' if right else '192 80 77'} / {0.15 + 0.85 * share:.2f})"
    )
    return f'<td style="{colour}{"; color: #fff" * (share > 0.5)}">{count}</td>'


def _classes(report: dict[str, Any]) -> list[str]:
    columns = [
        (title, key, form)
        for title, key, form in _CLASS_COLUMNS
        if any(row.get(key) is not None for row in report["classes"])
    ]
    rows = [  # averages come first: nobody would look for them below a thousand classes
        {"name": f"{name} average", **values, "support": report["count"]}
        for name, values in report["averages"].items()
    ]
    rows[0]["average_precision"] = report["mean_average_precision"]
    cells = []
    for row in [*rows, *report["classes"]]:
        values = (
            "" if row.get(key) is None else format(row[key], form) for _, key, form in columns
        )
        cells.append([text(row["name"]), *values])
    return ["<h2>Classes</h2>", table(["class", *(title for title, *_ in columns)], cells)]


def _curves(report: dict[str, Any], plots: dict[str, bytes]) -> list[str]:
    if "curves" not in plots:
        return []
    names = ""
    for row, colour in colours_of_curves(report):
        name = f"<bdi>{text(row['name'])}</bdi> {row['average_precision']:.3f}"
        names += f'<li style="--colour: {colour}">{name}</li>'
    legend = [f'<ul class="legend">{names}</ul>'] if names else []  # many curves have no colours
    return [_CURVES, image("precision-recall curves", plots["curves"]), *legend]


def mistakes(report: dict[str, Any], pictures: Pictures) -> list[str]:
    """Return HTML that shows the most confident mistakes, each beside a heat map."""
    if not report["mistakes"]:
        return ["<h2>Mistakes</h2>", "<p>None.</p>"]
    if not pictures.mistakes:  # no images
        return []
    cells = [
        "<figure><div "
        f'class="pair">{image(row["name"], picture)}{image("heat map of the evidence", heat)}</div>'
        f"<figcaption><b>{text(row['label'] or NO_CLASS)} → {text(row['prediction'])}</b> "
        f"{number(row['confidence'], '.2%')}<br><span>{text(row['name'])}</span></figcaption></figure>"
        for row, picture, heat in zip(
            report["mistakes"], pictures.mistakes, pictures.heatmaps, strict=True
        )
    ]
    of_none = (
        ' If the prediction is "not X", red shows the evidence for X.' if "map" in report else ""
    )
    return [
        f"<h2>The {len(cells)} most confident mistakes</h2>",
        "<p>The text below an image is: true class → prediction, confidence of the prediction, and "
        "name of the image. "
        "Red shows the evidence for the prediction (Grad-CAM of the last stage, arXiv "
        f"1610.02391).{of_none}</p>",
        '<div class="grid mistakes">' + "\n".join(cells) + "</div>",
    ]


def gallery(report: dict[str, Any], pictures: Pictures) -> list[str]:
    """Return HTML with the images that the net is most sure and least sure of, grouped by class."""
    if report["gallery"] and not pictures.gallery:  # no images
        return []
    shown = report["gallery"]
    occurring = sum(row["support"] > 0 for row in report["classes"])
    which = (
        "each class" if len(shown) == occurring else f"the {len(shown)} classes with the lowest F1"
    )
    parts = [
        "<h2>Class by class</h2>",
        f"<p>For {which}, the first images have the highest probability of the class, and the last "
        "images the lowest. "
        "The probability is below the image. If the class is not predicted, an arrow points to the "
        "prediction.</p>",
    ]
    files = iter(pictures.gallery)
    for row in shown:
        cells = []
        for sample in row["samples"]:
            caption = number(sample["probability"], ".2%")
            kind = ""
            if not sample["right"]:
                caption += f" <b>→ {text(sample['prediction'] or NO_CLASS)}</b>"
                kind = ' class="wrong"'
            caption += f"<br><span>{text(sample['name'])}</span>"
            picture = image(sample["name"], next(files))
            cells.append(f"<figure{kind}>{picture}<figcaption>{caption}</figcaption></figure>")
        parts.append(
            f'<h3>{text(row["class"])}</h3><div class="grid gallery">' + "\n".join(cells) + "</div>"
        )
    return parts


def text(value: object) -> str:
    """Return a value as text that is escaped for HTML."""
    return html.escape(str(value))


def number(value: float | None, form: str = ".4f") -> str:
    """Format a number, or return "not finite" for None."""
    return "not finite" if value is None else format(value, form)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """Return a scrolling table of HTML cells, with the first `text_columns` columns aligned
    left.
    """

    def cells(tag: str, row: Sequence[str]) -> str:
        kind = ' class="text"'
        return "".join(
            f"<{tag}{kind * (column < text_columns)}>{cell}</{tag}>"
            for column, cell in enumerate(row)
        )

    lines = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    dense = ' class="dense"' * (len(header) > 6)
    content = (
        f"<table{dense}><thead><tr>{cells('th', header)}</tr></thead>\n"
        f"<tbody>{lines}</tbody></table>"
    )
    return scrolling(content, lines.count("<tr>"), len(header))


def scrolling(content: str, rows: int, columns: int) -> str:
    """Put HTML content into a scrolling box, with a hint if the content is too large for a narrow
    window.
    """
    tall = rows > _ROWS
    hint = '<p class="hint">Scroll to see the whole table.</p>' * (tall or columns > _COLUMNS)
    return f'{hint}<div class="scroll{" tall" * tall}" tabindex="0">{content}</div>'


def image(alt: str, data: bytes) -> str:
    """Return an img tag that contains the image file `data`."""
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return (
        f'<img alt="{text(alt)}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'
    )
