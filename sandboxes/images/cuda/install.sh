#!/bin/sh
# What a session needs beside the CUDA toolkit. A base that has all of it is left as it is, so that
# a site without a network can bring its own: `sandbox build --cuda --base IMAGE --offline`.
set -eu

complete() {
    PATH=/opt/python/bin:/usr/local/cuda/bin:$PATH
    for program in bash gcc g++ nvcc ninja python3; do
        command -v "$program" >/dev/null || { echo "missing: $program"; return 1; }
    done
    for module in ctypes numpy torch triton; do
        python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" ||
            { echo "missing: the Python module $module"; return 1; }
    done
}

if (complete); then
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    bash build-essential python3 python3-dev python3-venv
python3 -m venv /opt/python
/opt/python/bin/pip install --no-cache-dir -r /opt/build/requirements.txt
rm -rf /var/lib/apt/lists/*
complete
