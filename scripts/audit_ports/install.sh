#!/usr/bin/env bash
# install.sh FOLDER: a venv there with the ports of mindone, mindaudio and mindocr, their references in transformers and diffusers, and PyTorch.
# All from PyPI, nothing from a hub: nets are built from configurations, with random weights.
set -euo pipefail
python3 -m venv "$1"
pip=("$1/bin/pip" install -q --disable-pip-version-check)
"${pip[@]}" 'numpy>=1.25,<2' mindspore==2.10.0 torch==2.13.0 transformers==4.57.1 diffusers==0.35.2 pytest \
  tqdm 'tensorboardX>=2.6.2' omegaconf
# mindone asks for much more than its nets import: decord, trampoline, ml-collections …
"${pip[@]}" --no-deps mindone==0.5.0
# the same of two nets of other packages, and of their originals
"${pip[@]}" --no-deps mindaudio==0.3.0 speechbrain==1.1.2 mindocr==0.5.0 easyocr==1.7.2
