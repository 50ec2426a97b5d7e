"""What people type who come from another project: each flag gets the flag here, or one honest
line.
"""

import importlib
import re
from types import ModuleType

import pytest

from resnet_fn.config import cli
from resnet_fn.config.foreign_flags import advice_by_word, advice_on_value, flags_in
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.models import create_model
from resnet_fn.recipes import load_recipe
from resnet_fn.train import parse

COMMANDS = ("train", "launch", "evaluate", "predict", "export", "pack")
# timm's train.py and torchvision's references/classification/train.py, whole, except what train has
# itself.
TIMM = """--val-split --train-split --class-map --initial-checkpoint --no-resume-opt --num-classes --gp
    --input-size --crop-pct -b -vb --channels-last --torchscript --fuser --grad-checkpointing --opt-eps --opt-betas
    --clip-grad --clip-mode --lr-noise --lr-cycle-mul --lr-k-decay --warmup-lr --start-epoch --decay-milestones
    --decay-epochs --cooldown-epochs --patience-epochs --decay-rate --dr --no-aug --scale --ratio --hflip --vflip --aa
    --aug-repeats --aug-splits --jsd-loss --bce-loss --bce-target-thresh --reprob --remode --recount --resplit
    --cutmix-minmax --mixup-prob --mixup-switch-prob --mixup-mode --mixup-off-epoch --drop --drop-connect --drop-block
    --bn-momentum --bn-eps --sync-bn --dist-bn --split-bn --model-ema --model-ema-decay --log-interval
    --recovery-interval --checkpoint-hist -j --workers --amp --native-amp --apex-amp --pin-mem --no-prefetcher
    --experiment --eval-metric --tta --log-wandb --pretrained --head-init-scale --torchcompile --amp-dtype"""
TORCHVISION = """-b -j --workers --norm-weight-decay --mixup-alpha --cutmix-alpha --lr-scheduler
    --lr-warmup-epochs --lr-warmup-method --lr-warmup-decay --lr-step-size --lr-gamma --print-freq --output-dir
    --start-epoch --cache-dataset --sync-bn --test-only --auto-augment --ra-magnitude --random-erase --amp --world-size
    --dist-url --model-ema --model-ema-steps --model-ema-decay --use-deterministic-algorithms --val-resize-size
    --val-crop-size --train-crop-size --clip-grad-norm --ra-sampler --ra-reps"""
MINDCV = """--distribute --val-interval --ckpt-path --resume-opt --num-parallel-workers --drop-remainder
    --image-resize --re-prob --re-scale --amp-level --keep-checkpoint-max --ckpt-save-dir --ckpt-save-interval
    --epoch-size --dataset-sink-mode --ema-decay --clip-value --dynamic-loss-scale --use-nesterov --filter-bias-and-bn
    --scheduler --warmup-factor --multi-step-decay-milestones --num-cycles --device-target --data-url --train-url"""
OTHERS = """--imgsz --batch-size-per-gpu --lr0 --cos-lr --early-stopping --kfold --swa --gpus --devices
    --accelerator --max-epochs --fast-dev-run --gradient-clip-val --accumulate-grad-batches --work-dir --resume-from
    --launcher --freeze-backbone --data --dtype --bf16 --save-freq --eval --distributed --smooth-labels"""


@pytest.fixture
def flags_of(capsys):
    """flags_of(command): the flags that its help lists."""

    def listed(command: str) -> set[str]:
        with pytest.raises(SystemExit):
            module(command).main(["--help-all" if command == "train" else "--help"])
        return set(re.findall(r"--[a-z][a-z\d-]*", capsys.readouterr().out.split("examples:")[0]))

    return listed


def module(command: str) -> ModuleType:
    return importlib.import_module(f"resnet_fn.{command}")


def test_every_flag_in_advice_exists(flags_of):
    of_commands = {command: flags_of(command) for command in COMMANDS}
    every = ((word, advice) for word, several in advice_by_word().items() for advice in several)
    for word, advice in every:
        assert any(set(flags_in(advice)) <= flags for flags in of_commands.values()), advice
        for name, rest in re.findall(r"python -m resnet_fn\.(\w+)(.*)", advice):
            flags = set() if name == "recipes" else of_commands[name]
            assert set(re.findall(r"--[a-z][a-z-]*", rest)) <= flags, advice
        fitting = [flags for flags in of_commands.values() if set(flags_in(advice)) <= flags]
        assert any(f"--{word}" not in flags for flags in fitting), (
            f"--{word} exists wherever {advice!r} could be given"
        )


@pytest.mark.parametrize(
    "theirs", [TIMM, TORCHVISION, MINDCV, OTHERS], ids=["timm", "torchvision", "mindcv", "others"]
)
def test_every_flag_of_another_project_gets_a_hint(theirs, says):
    for word in theirs.split():
        with pytest.raises(cli.UsageError) as caught:
            parse([word])
        says(caught, f"unknown argument '{word}'; ")
        assert "none like it" not in str(caught.value), word


@pytest.mark.parametrize(
    ("command", "words", "parts"),
    [
        ("train", "--early-stopping", "give --patience N"),
        ("train", "--pretrained", "--weights torchvision:resnet50"),
        ("train", "--kfold 5", "--train-list FILE and --val-list FILE"),
        ("train", "--swa", "--ema 0.999"),
        ("train", "--aa rand-m9-mstd0.5", "--policy randaugment"),
        ("train", "--reprob 0.25", "--erasing P"),
        ("train", "-j 8", "--data-threads N|resnet_fn.launch --workers N --"),
        ("train", "-j8", "--data-threads N"),
        ("train", "--val-split 0.2", "--validation-share 0.2"),
        ("train", "--num-classes 3", "that of the data set; leave it out"),
        ("train", "--model-ema", "--ema 0.9999"),
        ("train", "--model_ema", "--ema 0.9999"),
        ("train", "--gpus 2", "resnet_fn.launch --workers N -- FLAGS"),
        ("train", "--lr-step-size 30", "--schedule step --milestones 30,60"),
        ("train", "--lrf 0.01", "--min-learning-rate X, the rate itself: lrf times the first rate"),
        ("train", "--clip-value 0.5", "--clip-norm X, a limit of the norm; single values"),
        ("train", "--clip-mode value", "single values of gradients are not limited"),
        ("train", "epochs=3", "'epochs=3'|write --epochs 3"),
        ("train", "imgsz=224", "'imgsz=224'|--image-size N"),
        ("train", "photographs", "'photographs'|--data-dir photographs"),
        ("train", "--device cuda:0", "device: 'cuda:0'|CPU, Ascend"),
        ("train", "--precision bf16", "precision: 'bf16'|fp16"),
        ("train", "--opt rmsprop", "optimizer: 'rmsprop'|sgd, adam, adamw"),
        ("train", "--sched multistep", "schedule: 'multistep'|step, with --milestones"),
        ("train", "--sched poly", "schedule: 'poly'|give linear, which is poly with power 1"),
        ("train", "--sched tanh", "schedule: 'tanh'|does not exist here; the nearest is cosine"),
        ("train", "--policy rand-m9-mstd0.5", "policy: 'rand-m9-mstd0.5'|randaugment"),
        ("evaluate", "run --device gpu", "--device: 'gpu'|CPU, Ascend"),
        ("evaluate", "run --output out", "--report FOLDER"),
        ("predict", "run x.png --topk 3", "--top N"),
        ("predict", "--ckpt run x.png", "--checkpoint RUN"),
        ("launch", "--nproc-per-node 2 -- --epochs 1", "--workers N"),
        ("launch", "--workers 2 --data-dir D --epochs 3", "arguments of resnet_fn.train after --"),
        ("launch", "--dist-backend nccl", "arguments of resnet_fn.train after --"),
        ("evaluate", "run --pin-mem", "leave it out"),
    ],
)
def test_a_line_from_another_project_names_the_flag(command, words, parts, raises_line, tmp_path):
    (tmp_path / "photographs").mkdir()
    with raises_line(*parts.split("|"), kind=cli.UsageError):
        module(command).main(words.split())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("plot", "--data run"),
        ("convert", "--input a.pth b.pth"),
        ("pack", "--data-dir D packed"),
        ("predict", "run a.png --save"),
    ],
)
def test_advice_for_other_commands_is_not_given(command, words, capsys):
    with pytest.raises(cli.UsageError) as caught:
        module(command).main(words.split())
    text = str(caught.value)
    assert "RUN first" not in text
    assert "leave it out" not in text


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("resnet50d", "give --model resnet50 --stem d"),
        ("resnet101d.ra2_in1k", "give --model resnet101 --stem d"),
        ("seresnet50", "give --model se_resnet50"),
        ("efficientnet_b0", "only residual networks exist here; resnet_fn.fit"),
        ("resnet50.a1_in1k", "did you mean resnet50"),
    ],
)
def test_a_net_of_another_project_names_the_net(name, fix, raises_line):
    with raises_line(f"model: {name!r}", fix):
        create_model(name)


def test_an_unknown_net_fails_before_data_is_read(raises_line, tmp_path):
    """A data set can take minutes to read; here it does not even exist."""
    with raises_line("model: 'resnet50d'", "--stem d"):
        module("train").main(
            ["--recipe", "finetune", "--data-dir", str(tmp_path / "none"), "--model", "resnet50d"]
        )


def test_options_in_python_get_the_same_advice(raises_line):
    with raises_line(
        "options: unknown setting 'num_workers'",
        "give data_threads N",
        "resnet_fn.launch --workers N",
    ):
        RunOptions(num_workers=8)


def test_one_error_names_all_unknown_settings(raises_line, write_recipe):
    with raises_line(
        "recipe: unknown setting 'epoch'; give epochs N; recipe: ",
        "unknown setting 'model_ema'; give ema 0.9999, the decay",
    ):
        Recipe(epoch=1, model_ema=True)
    lines = {"epoch": 1, "lr": 0.1, "learning_rate": 0.2, "reprob": 0.2}
    with raises_line(
        "mine.toml line 1: unknown setting 'epoch'",
        "line 3: learning_rate: ",
        "line 4: unknown setting 'reprob'; give erasing P",
    ):
        load_recipe(write_recipe(lines))


def test_every_advised_value_is_valid_for_its_setting():
    declarations = Recipe.declarations | RunOptions.declarations
    for setting, value in {
        "precision": "amp",
        "schedule": "onecycle",
        "loss": "BCE",
        "monitor": "acc",
    }.items():
        advice = advice_on_value(setting, value)
        assert any(choice in advice for choice in declarations[setting].choices), advice


def test_a_folder_may_have_a_data_sets_name(tmp_path):
    (tmp_path / "digits").mkdir()
    assert parse(["--dataset", "digits"])[0].dataset == "digits"


def test_a_flag_with_underscores_keeps_its_no(raises_line):
    with raises_line("unknown argument '--no_progress'; did you mean --no-progress?"):
        parse(["--no_progress"])
    with raises_line("unknown argument '--data_dir'; did you mean --data-dir"):
        parse(["--data_dir", "x"])


def test_a_negative_number_is_no_flag():
    with pytest.raises(cli.UsageError) as caught:
        parse(["--lr-noise", "-1.5"])
    assert "-1.5" not in str(caught.value)
