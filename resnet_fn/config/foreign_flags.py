"""This module holds flags and values of other projects, each with what to give instead.

People bring command lines of timm, torchvision, fastai, ultralytics, Lightning, MMPretrain and
MindCV.
"""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

# Advice that also fits commands that only compute, such as evaluate.
_NOT_NEEDED = "not needed here; leave it out"
_NOT_THERE = "this package does not have it; leave it out"
# A line of advice, and below it, indented, the flags that get it, without dashes. Advice fits a
# command that has all flags which the advice names. Advice that names no flag is for training. A
# flag may stand below several lines of advice: it gets the first one that fits the command. For
# example, --workers gets --data-threads in `train`, and --threads in `evaluate`, which lacks the
# former.
_FLAGS = f"""
# data
give --data-dir FOLDER
    data dataset-path dataset-dir dataset-root data-root data-folder data-url root d
give --data-dir FOLDER, the folder that contains the halves train/ and val/
    train-dir val-dir valid-dir train-data val-data train-path val-path train-folder
    val-folder test-dir
give --train-list FILE and --val-list FILE
    train-file val-file train-csv val-csv train-txt val-txt csv ann-file annotations
give --validation-share 0.2; a folder val/ is used without a flag
    val-split validation-split valid-split val-ratio val-frac val-fraction val-pct valid-pct
    val-percent val-size test-size test-split train-split validation-fraction holdout
halves are found by their names; give --data-dir FOLDER
    split eval-split
the number of classes is that of the data set; leave it out
    num-classes nb-classes n-classes num-class nc num-labels classes
classes are the names of the folders, or those in --train-list FILE and --val-list FILE
    class-map class-names classes-file
the number of channels is that of the data set; leave it out
    in-channels in-chans input-channels
cross-validation is not built in; run once for each fold, with --train-list FILE and --val-list FILE
    kfold k-fold folds fold num-folds n-splits cv cross-validation cross-val
this package downloads nothing; put the files into --data-dir FOLDER
    dataset-download download download-data
training samples are always shuffled; leave it out
    shuffle no-shuffle
give --sampling balanced
    sampler balanced-sampler weighted-sampler weighted-random-sampler oversample
    oversampling balance class-balanced
give --data-threads N for N threads, or python -m resnet_fn.launch --workers N -- for N processes
    workers num-workers n-workers nw j dataloader-workers dataloader-num-workers
    num-parallel-workers loader-workers num-threads num-cpus
give --threads N
    workers num-workers n-workers nw j num-threads num-cpus
# images and augmentation
give --image-size N
    imgsz img size input-size image-resize train-crop-size crop-size
give --eval-size N
    val-crop-size test-crop-size val-img-size val-image-size
give --eval-resize N
    val-resize-size test-resize-size
give --eval-resize N, the shorter side before the centre crop, instead of a fraction
    crop-pct crop-ratio test-crop-pct eval-crop-ratio
give --flip, which flips half of the images
    hflip fliplr horizontal-flip random-flip hflip-prob
give --max-rotation X, which is for data sets in memory
    degrees rotation rotate random-rotation
give --max-shift N, which is for data sets in memory
    translate shift
give --crop-scale X, the least area of a random crop
    scale rrc-scale
give --policy randaugment, trivialaugment or autoaugment, and --policy-magnitude N
    aa auto-augment autoaugment randaugment rand-augment randaug trivialaugment ta
    augmentation augment auto-aug
give --policy-magnitude N
    ra-magnitude
give --policy-ops N
    ra-n ra-num-ops num-ops
give --repeats N
    aug-repeats repeated-aug ra-reps ra-sampler epoch-repeats
give --erasing P
    reprob re-prob random-erase random-erasing random-erase-prob
--erasing P is the only setting of random erasing; leave this flag out
    remode recount resplit re-mode re-count re-scale re-ratio re-value re-max-attempts
give --mixup ALPHA
    mixup-alpha mix-up
give --cutmix ALPHA
    cutmix-alpha cut-mix
give --mix-switch P
    mixup-switch-prob
give --mix-off-epochs N, the number of last epochs without mixup
    mixup-off-epoch close-mosaic
mixup and CutMix have other settings here: --mixup, --cutmix, --mix-switch and --mix-off-epochs
    mixup-prob mixup-mode cutmix-prob cutmix-minmax
leave out the flags and settings that augment; python -m resnet_fn.recipes NAME lists them
    no-aug no-augment
# evaluation
give --eval-every N, the number of epochs from one evaluation to the next
    val-interval eval-interval val-freq eval-freq val-every check-val-every-n-epoch
    validate-every val-period
# net and weights
give --model NAME
    a m net network architecture backbone model-name model-arch encoder model-type
give --weights torchvision:resnet50, which names the file to download
    pretrained pre-trained imagenet-weights
give --weights FILE
    initial-checkpoint init-checkpoint pretrained-path pretrained-weights pretrained-model
    pretrain ckpt-path checkpoint-path finetune fine-tune load load-from load-weights
    model-path pretrained-checkpoint
give --checkpoint RUN, or RUN alone
    ckpt ckpt-path checkpoint-path weights model-path model load load-from run resume
    pretrained
give --train-only fc, which freezes all parts except the last layer
    freeze-backbone freeze-encoder freeze-base freeze-features linear-probe linear-probing
    feature-extract freeze-layers
train twice: with --train-only fc, then with --weights RUN
    unfreeze freeze-epochs
give --head-lr-factor X for X times --learning-rate in the last layer
    head-lr head-learning-rate lr-head classifier-lr fc-lr
give --reset-head
    reset-classifier
give --dropout P
    drop drop-rate dropout-rate dropout-prob
give --drop-path P
    drop-connect drop-path-rate drop-connect-rate stochastic-depth stochastic-depth-prob
give --sync-batchnorm
    sync-bn syncbn sync-batch-norm
the loop has no callbacks; docs/own_loop.md shows a loop of your own
    callbacks callback hooks
BatchNorm's statistics are averaged over the workers in each update; leave it out
    dist-bn
give --zero-init-residual
    zero-gamma zero-init-last
# updates
give --batch-size N
    b bsz train-batch-size mini-batch-size
give --batch-size N, the number of samples of an update over all workers
    batch-size-per-gpu per-device-train-batch-size imgs-per-gpu samples-per-gpu
    per-gpu-batch-size total-batch-size global-batch-size
give --accumulate N
    grad-accum grad-accum-steps gradient-accumulation gradient-accumulation-steps accum-iter
    accum-steps accumulation-steps accumulate-grad-batches update-freq grad-accumulation
    accumulation
give --epochs N
    num-epochs n-epochs nb-epochs epoch max-epochs max-epoch num-train-epochs epoch-size
    total-epochs
a run's length is given in epochs; give --epochs N
    max-steps num-steps total-steps max-iters num-iters max-iter total-iters iterations
    train-steps n-steps
for a quick try, give --epochs 1 and a smaller data set
    fast-dev-run dry-run limit-train-batches overfit-batches max-train-samples num-samples
    subset fraction limit-val-batches
give --learning-rate X
    lr0 init-lr initial-lr start-lr
give --learning-rate X, which is not scaled by the batch or the workers
    base-lr blr autoscale-lr scale-lr
give --min-learning-rate X
    lr-min eta-min final-lr
give --min-learning-rate X, the rate itself: lrf times the first rate
    lrf
give --schedule NAME
    scheduler lr-scheduler lr-schedule lr-policy lr-scheduler-type
give --schedule cosine
    cos-lr cosine-lr
give --schedule step --milestones 30,60, the epochs when the rate drops
    lr-step-size step-size decay-epochs lr-decay-epochs lr-steps lr-milestones
    decay-milestones decay-steps lr-step multi-step-decay-milestones
give --milestone-factor X
    lr-gamma gamma decay-rate dr lr-decay-rate lr-decay
give --warmup-epochs X
    lr-warmup-epochs warm-epochs warmup warmup-epoch warm-up-epochs
give --warmup-epochs X, which need not be a whole number
    warmup-steps warmup-iters lr-warmup-steps warmup-ratio warmup-updates num-warmup-steps
the warm-up rises in a line from almost 0; its only setting is --warmup-epochs X
    warmup-lr warmup-factor lr-warmup-decay lr-warmup-method warmup-bias-lr warmup-momentum
    warmup-lr-init
give --loss bce
    bce-loss bce binary-cross-entropy
give --loss NAME
    criterion loss-fn loss-type
give --loss focal
    focal focal-loss
give --label-threshold X
    bce-target-thresh
give --label-smoothing X
    ls
give --class-weights balanced or a file
    class-weight pos-weight weighted-loss loss-weights use-class-weights cls-pw
give --optimizer NAME
    optim optimiser
give --epsilon X
    opt-eps adam-eps adam-epsilon
give --momentum B1 --beta2 B2
    opt-betas betas adam-betas
give --beta2 X
    adam-beta2
give --nesterov
    use-nesterov
give --weight-decay X
    decay l2
norm layers and biases have no weight decay; give --decay-all to decay them, too
    norm-weight-decay bias-weight-decay no-bias-decay filter-bias-and-bn no-norm-decay
give --clip-norm X
    clip-grad clip-grad-norm grad-clip grad-clip-norm max-grad-norm gradient-clip-val
    gradient-clip gradient-clipping clip
give --clip-norm X, a limit of the norm; single values of gradients are not limited here
    clip-value clip-mode clip-grad-value
give --ema 0.9999, the decay
    model-ema use-ema ema-decay model-ema-decay ema-model
give --ema-every N
    model-ema-steps ema-steps ema-interval
SWA's equal average does not exist here; give --ema 0.999, a moving average
    swa swa-lr swa-start stochastic-weight-avg stochastic-weight-averaging
give --precision fp16
    amp native-amp apex-amp fp16 half mixed-precision amp-level autocast use-amp opt-level
    dtype amp-dtype use-fp16 torch-dtype
bfloat16 does not exist here; give --precision fp16
    bf16 bfloat16
the loss scale adapts by itself with --precision fp16; leave it out
    dynamic-loss-scale
# runs and evaluation
give --out-dir FOLDER
    output-dir save-dir work-dir workdir logdir log-dir ckpt-save-dir default-root-dir
    results-dir result-dir train-url o out outdir checkpoint-dir ckpt-dir save-path
    output-path output-folder exp-dir
give --out-dir runs/NAME
    experiment exp exp-name name run-name project experiment-name tag comment
give --out FILE
    o output output-path output-file save-path output-dir
give --report FOLDER or --json FILE
    o output output-dir out out-dir results-file save-dir
give --json FILE or --csv FILE
    o output output-dir out out-dir output-file results-file save-txt save-dir
give --resume RUN
    resume-from resume-from-checkpoint ckpt checkpoint continue auto-resume
give --resume RUN, which goes on with the update after the checkpoint
    start-epoch initial-epoch
give --resume never
    no-resume from-scratch
give --weights RUN to start a new run with a run's weights
    no-resume-opt resume-opt
a trained run is scored by python -m resnet_fn.evaluate RUN
    test-only eval e evaluate test eval-only evaluate-only validate validate-only val
    test-mode do-eval
pictures are classified by python -m resnet_fn.predict RUN PICTURES
    predict inference
give --monitor NAME
    eval-metric metric best-metric
give --patience N
    early-stopping early-stop earlystop earlystopping early-stopping-patience
    early-stopping-rounds early-stop-patience
give --log-every N
    print-freq log-interval log-freq p log-every-n-steps logging-steps print-interval
give --checkpoint-every N, a number of updates; 0 saves after each epoch
    save-freq save-interval save-every save-period ckpt-save-interval checkpoint-freq
    checkpoint-interval recovery-interval save-steps save-ckpt-freq
give --keep-last N
    checkpoint-hist keep-checkpoint-max save-total-limit save-top-k max-checkpoints
    keep-checkpoints
the last and the best checkpoints are saved without a flag; leave it out
    save-last save-model save save-ckpt save-best
give --eval-batch-size N
    vb validation-batch-size val-batch-size test-batch-size per-device-eval-batch-size
give --seed N
    random-seed manual-seed random-state s
give --recipe FILE.toml or a recipe's name
    config cfg c conf config-file yaml params
give --no-progress
    quiet q silent disable-tqdm
each run writes metrics.jsonl and TensorBoard's files; leave it out
    log-wandb wandb use-wandb tensorboard tb use-tensorboard mlflow report-to logger
give --tta flip
    test-time-augmentation augment
python -m resnet_fn.evaluate RUN --tta flip scores with test-time augmentation
    tta test-time-augmentation
give --top N
    topk top-k k
give --threshold P
    conf conf-thres conf-threshold
write RUN first, then the pictures, or give --list FILE
    source input image images img i input-dir data data-dir
give --format onnx
    onnx to-onnx export-onnx
leave out --batch, because any batch size is the default
    dynamic dynamic-batch dynamic-axes
# devices and workers
MindSpore computes on CPUs and Ascend cards; give --device CPU or --device Ascend
    gpu cuda gpu-id gpu-ids no-cuda use-gpu use-cuda no-gpu cpu accelerator device-target
    npu device-id mps
give --workers N
    world-size nproc nproc-per-node worker-num num-workers np n gpus num-gpus ngpus devices
    num-processes local-worker-num num-devices
give --nnodes N
    nodes num-nodes num-machines
give --node-rank N
    machine-rank
give --master-addr IP and --master-port N
    dist-url rdzv-endpoint main-process-ip init-method master main-process-port
to train on several workers, run python -m resnet_fn.launch --workers N -- FLAGS
    gpus num-gpus ngpus n-gpu n-gpus devices num-devices nproc nproc-per-node world-size
    worldsize distributed distribute ddp dp multi-gpu data-parallel
    multiprocessing-distributed strategy dist-url dist-backend launcher local-rank rank
    rank-size nnodes num-nodes nodes node-rank master-addr master-port num-processes backend
    worker-num
python -m resnet_fn.train computes the same bits each time; leave it out
    deterministic use-deterministic-algorithms cudnn-benchmark benchmark cudnn
the update is compiled; give --mode pynative to compile nothing
    compile torchcompile torch-compile torchscript jit no-compile graph-mode eager
to need less memory, give --accumulate N
    grad-checkpointing gradient-checkpointing activation-checkpointing
{_NOT_NEEDED}
    pin-mem pin-memory persistent-workers prefetch-factor no-prefetcher channels-last fuser
    prefetch cache-dataset cache cache-mode dataset-sink-mode sink-mode memory-format
    use-multi-epochs-loader worker-seeding no-ddp-bb model-ema-force-cpu verbose v
    enable-modelarts drop-last drop-remainder
{_NOT_THERE}
    vflip flipud vertical-flip shear perspective mosaic hsv-h hsv-s hsv-v copy-paste augmix
    aug-splits split-bn jsd-loss drop-block gp global-pool bn-momentum bn-eps lookahead sam
    lr-noise lr-noise-pct lr-noise-std lr-k-decay lr-cycle-mul lr-cycle-decay lr-cycle-limit
    cooldown-epochs num-cycles ratio head-init-scale head-init-bias save-images distill
    teacher teacher-model distillation-type lr-find lr-finder auto-lr-find quantize int8 qat
    prune aux-factor reduction grayscale gaussian-blur gauss find-unused-parameters opset
    simplify half
"""

# Setting → advice → values of other projects, in lower case. "16*": any that begins with 16.
_VALUES = {
    "device": {
        "MindSpore computes on CPUs and Ascend cards; use one of CPU, Ascend": """cuda* gpu* mps 0*
            auto xpu""",
    },
    "precision": {
        "give fp16, with which the loss scale adapts": "16* amp half float16 mixed* o1 o2 o3",
        "bfloat16 does not exist here; give fp16": "bf16* bfloat16",
        "give fp32": "32* float32 full o0 no none",
    },
    "optimizer": {"give sgd, which has --momentum 0.9": "momentum nesterov"},
    "schedule": {
        "give step, with --milestones 30,60": "multi* step*",
        "give cosine, with --warmup-epochs X": "one* cosine* cos* warm*",
        "give linear": "poly* tanh",
        "give constant": "none fixed no const*",
        "does not exist here; give step, with --milestones 30,60": "plateau* reduce* exp*",
    },
    "loss": {
        "give cross_entropy": "ce cross* soft* nll* categorical* sparse* label*",
        "give bce": "bce* binary* sigmoid* multilabel*",
    },
    "policy": {
        "give randaugment, with --policy-magnitude N and --policy-noise X": "rand* ra",
        "give trivialaugment": "ta* trivial*",
        "give autoaugment": "auto* aa imagenet original* v0*",
    },
    "dataset": {
        "did you mean imagefolder, with --data-dir FOLDER?": "imagenet* image* folder* custom",
        "the digits need no files; resnet_fn.fit takes arrays": "mnist* fashion* kmnist svhn*",
        "give cifar10 or cifar100": "cifar*",
    },
    "monitor": {
        "give top1": "acc* top* val_acc* val/acc* eval_acc*",
        "give loss": "val_loss val/loss eval_loss eval/loss train_loss",
        "give macro_f1": "f1* macro* val_f1",
        "give map": "m_ap ap mean_average*",
    },
    "model": {
        "give --model resnet18 --stem d": "resnet18d*",
        "give --model resnet34 --stem d": "resnet34d*",
        "give --model resnet50 --stem d": "resnet50d*",
        "give --model resnet101 --stem d": "resnet101d*",
        "give --model resnet152 --stem d": "resnet152d*",
        "give --model se_resnet18": "seresnet18*",
        "give --model se_resnet34": "seresnet34*",
        "give --model se_resnet50": "seresnet50 seresnet50.* legacy_seresnet50*",
        "give --model se_resnet101": "seresnet101 seresnet101.* legacy_seresnet101*",
        "only residual networks exist here; resnet_fn.fit trains a net of your own": """alexnet*
            beit* convnext* deit* densenet* efficientnet* googlenet* inception* mnasnet* mobilenet*
            regnet* shufflenet* squeezenet* swin* tf_* vgg* vit* xception* yolo*""",
    },
    "mode": {"give graph": "0 jit compile*", "give pynative": "1 eager"},
}


def _by_word() -> dict[str, list[str]]:
    """Return the lines of advice about each word of `_FLAGS`, in the order of the table."""
    by_word: dict[str, list[str]] = {}
    advice = ""
    for line in _FLAGS.strip().splitlines():
        if line.startswith("    "):
            for word in line.split():
                by_word.setdefault(word, []).append(advice)
        elif not line.startswith("#"):
            advice = line
    return by_word


ADVICE_BY_WORD = _by_word()


def flags_in(advice: str) -> list[str]:
    """Return the flags that a line of advice names, except those of another command."""
    return re.findall(r"--[a-z][a-z\d-]*", re.sub(r"python -m resnet_fn\.\w+.*", "", advice))


def advice_on_flag(word: str, flags: Collection[str]) -> str:
    """Return the advice to a command with `flags` about another project's flag, or ""."""
    letter = re.fullmatch(r"-([a-zA-Z])\d+", word)  # -j8
    name = letter[1] if letter else word.lstrip("-").replace("_", "-").lower()
    fitting = (advice for advice in ADVICE_BY_WORD.get(name, ()) if _fits(advice, flags))
    return next(fitting, "")


def _fits(advice: str, flags: Collection[str]) -> bool:
    """Return whether a command with `flags` can follow the advice."""
    if named := flags_in(advice):
        return set(named) <= set(flags)
    trains = "--epochs" in flags
    computes = "--device" in flags
    return trains or (computes and advice in (_NOT_NEEDED, _NOT_THERE))


def advice_on_setting(word: str, settings: Collection[str]) -> str:
    """Return the advice about another project's name of a setting in Python or a recipe file."""
    advice = advice_on_flag(word, [f"--{name.replace('_', '-')}" for name in settings])
    for flag in sorted(flags_in(advice), key=len, reverse=True):
        advice = advice.replace(flag, flag.removeprefix("--").replace("-", "_"))
    return advice


def advice_on_value(setting: str, value: str) -> str:
    """Return the advice about another project's value of a setting, or ""."""
    for advice, patterns in _VALUES.get(setting, {}).items():
        if any(fnmatchcase(value.lower(), pattern) for pattern in patterns.split()):
            return advice
    return ""
