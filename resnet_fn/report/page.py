"""The report as one HTML page that opens without a network."""

import base64
import html
from collections.abc import Iterable, Sequence
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1c1c; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.from { color: #555; margin-top: .2rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.tile { border: 1px solid #ddd; border-radius: 6px; padding: .5rem 1rem; min-width: 7rem; }
.tile b { display: block; font-size: 1.35rem; } .tile span { color: #555; font-size: .85rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
thead th { position: sticky; top: 0; background: #fff; border-bottom: 2px solid #999; }
.scroll { max-height: 36rem; overflow: auto; }
img { max-width: 100%; } .wide { overflow-x: auto; } .wide img { min-width: 600px; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 1rem .8rem; }
figure { margin: 0; } figcaption { font-size: .9rem; line-height: 1.35; overflow-wrap: anywhere; }
figcaption span { color: #555; } .grid img { width: 100%; } .grid img[src*="/png;"] { image-rendering: pixelated; }
td.hit { background: #dbe8f6; } td.miss { background: #f8dcdb; } footer { color: #777; margin: 3rem 0 1rem; }
"""
_TABLE_UP_TO = 30  # classes; a larger confusion matrix is a plot, or the list of confused pairs


def page(report: dict[str, Any], plots: dict[str, bytes], pictures: Sequence[bytes]) -> str:
    """Put the report's metrics, plots and pictures into one HTML document.

    Args:
        report: see `build_report`.
        plots: PNG files by name, see `draw_all`; tables stand for what is missing.
        pictures: image files, one for each of the report's mistakes.
    """
    made = report["checkpoint"]
    title = f"{made['model']} on {made['dataset']}"
    options = report["options"]
    how = f"{options['image_size']} pixels, test-time augmentation {options['tta']}"
    how += ", averaged weights (EMA)" if options["ema"] else ""
    body = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="from">run {_text(made["run"])}, update {made["update"]}, recipe {_text(made["recipe"])}; '
        f"{_text(how)}</p>",
        _tiles(report),
        *_confusion(report, plots),
        *_classes(report),
        *_calibration(report, plots),
        *_mistakes(report, pictures),
        "<footer>Every sample of the test set is counted once. Per-sample predictions: predictions.csv; "
        "these metrics: report.json.</footer>",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width"><title>{_text(title)}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _number(value: float | None, form: str = ".4f") -> str:
    return "not finite" if value is None else format(value, form)


def _tiles(report: dict[str, Any]) -> str:
    metrics = [
        ("top-1", _number(report["top1"], ".2%")),
        *([("top-5", _number(report["top5"], ".2%"))] if len(report["classes"]) > 5 else []),
        ("loss", _number(report["loss"])),
        ("macro F1", _number(report["averages"]["macro"]["f1"])),
        ("calibration error", _number(report["calibration"]["error"])),
        ("test images", str(report["count"])),
    ]
    return '<div class="tiles">' + "".join(_tile(name, value) for name, value in metrics) + "</div>"


def _tile(name: str, value: str) -> str:
    return f'<div class="tile"><b>{value}</b><span>{name}</span></div>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = ['class="text"' if place < text_columns else "" for place in range(len(row))]
        return "".join(f"<{tag} {kind}>{cell}</{tag}>" for kind, cell in zip(kinds, row, strict=True))

    lines = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', header)}</tr></thead>"
    return f'<div class="scroll"><table>{head}\n<tbody>{lines}</tbody></table></div>'


def _image(alt: str, data: bytes) -> str:
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return f'<img alt="{_text(alt)}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'


def _calibration(report: dict[str, Any], plots: dict[str, bytes]) -> list[str]:
    parts = ["<h2>Calibration</h2>"]
    if smoothing := report["checkpoint"]["label_smoothing"]:
        parts.append(
            f"<p>Trained with label smoothing {smoothing:g}: the net was never to be quite certain. A confidence below "
            "the accuracy, and a calibration error that comes of it, is what it was taught.</p>"
        )
    if "reliability" in plots:
        return [*parts, _image("reliability diagram", plots["reliability"])]
    rows = [
        (
            f"{row['from']:.2f} to {row['to']:.2f}",
            str(row["count"]),
            *(_number(row[key]) if row["count"] else "" for key in ("confidence", "accuracy")),
        )
        for row in report["calibration"]["bins"]
    ]
    return [*parts, _table(("confidence", "samples", "mean confidence", "accuracy"), rows)]


def _confusion(report: dict[str, Any], plots: dict[str, bytes]) -> list[str]:
    parts = ["<h2>Confusion matrix</h2>", "<p>Rows are true classes, columns predictions.</p>"]
    names = [_text(row["name"]) for row in report["classes"]]
    if "confusion" in plots:
        parts.append(f'<div class="wide">{_image("confusion matrix", plots["confusion"])}</div>')
    elif len(names) <= _TABLE_UP_TO:
        rows = "\n".join(
            f"<tr><th>{name}</th>" + "".join(_count(count, row == column) for column, count in enumerate(counts))
            for row, (name, counts) in enumerate(zip(names, report["confusion"], strict=True))
        )
        head = "".join(f"<th>{name}</th>" for name in names)
        parts.append(f'<div class="scroll"><table><thead><tr><th></th>{head}</tr></thead>{rows}</table></div>')
    if report["confused"]:
        parts.append("<h2>Most often confused</h2>")
        pairs = [(_text(row["label"]), _text(row["prediction"]), str(row["count"])) for row in report["confused"]]
        parts.append(_table(("true", "predicted", "samples"), pairs, text_columns=2))
    return parts


def _count(count: int, right: bool) -> str:
    kind = (' class="hit"' if right else ' class="miss"') if count else ""
    return f"<td{kind}>{count or ''}</td>"


def _classes(report: dict[str, Any]) -> list[str]:
    keys = ("precision", "recall", "f1")
    told = {
        "training_images": "training images",
        "loss_weight": "weight in the loss",
        "times_seen": "seen in an epoch, times",
    }
    treated = told if "loss_weight" in report["classes"][0] else {}
    rows = [  # the averages first: below a thousand classes nobody would find them
        (f"<b>{name} average</b>", *(_number(values[key]) for key in keys), str(report["count"]), *[""] * len(treated))
        for name, values in report["averages"].items()
    ]
    rows += [
        (
            *(_text(row["name"]), *(_number(row[key]) for key in keys), str(row["support"])),
            *(_number(row[key], ".4g") for key in treated),
        )
        for row in report["classes"]
    ]
    return ["<h2>Classes</h2>", _table(("class", "precision", "recall", "F1", "support", *treated.values()), rows)]


def _mistakes(report: dict[str, Any], pictures: Sequence[bytes]) -> list[str]:
    if not report["mistakes"]:
        return ["<h2>Mistakes</h2>", "<p>None.</p>"]
    cells = [
        f"<figure>{_image(row['name'], picture)}<figcaption><b>{_text(row['label'])} → {_text(row['prediction'])}</b> "
        f"{_number(row['confidence'], '.2%')}<br><span>{_text(row['name'])}</span></figcaption></figure>"
        for row, picture in zip(report["mistakes"], pictures, strict=True)
    ]
    return [
        f"<h2>The {len(cells)} most confident mistakes</h2>",
        "<p>True class → prediction, its confidence, and the image's name.</p>",
        '<div class="grid">' + "\n".join(cells) + "</div>",
    ]
