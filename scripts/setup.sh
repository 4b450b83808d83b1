#!/usr/bin/env bash
# Makes .venv with everything the Makefile uses; quick when nothing has changed since the last time.
#   PYTHON=python3.12     the Python to use
#   PIP_FLAGS='...'       further options of pip install, such as an index with CPU builds of torch
set -euo pipefail
cd "$(dirname "$0")/.."

SERVER="nvidia-pytriton==0.7.0"
# Later releases do not apply constraints where packages are built.
PIP="pip<26.2"
STAMP=.venv/.setup-stamp

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# The place counts: a virtual environment that was moved holds scripts that point to where it was.
stamp() { pwd; cat pyproject.toml scripts/setup.sh | sha256sum; }

# Prints nothing for a usable Python, else the Debian package or the reason that is missing.
lacks() {
    "$1" - 2>/dev/null <<'CHECK' || echo "it does not run"
import importlib.util, os, sys, sysconfig
version = f"{sys.version_info.major}.{sys.version_info.minor}"
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    print(f"it is Python {version}, not 3.11 to 3.13")
    sys.exit()
missing = []
if importlib.util.find_spec("ensurepip") is None:
    missing.append("python3-venv")
# NumPy 1.26 has no wheel for 3.13 and is compiled there.
header = os.path.join(sysconfig.get_path("include"), "Python.h")
if version == "3.13" and not os.path.exists(header):
    missing.append("python3-dev")
roots = [sysconfig.get_config_var("LIBDIR"), sys.base_prefix + "/lib", "/usr/lib", "/lib"]
multiarch = sysconfig.get_config_var("MULTIARCH") or ""
name = f"libpython{version}.so.1.0"
if not any(os.path.exists(os.path.join(r, m, name)) for r in roots if r for m in (multiarch, "")):
    missing.append(f"libpython{version}")
print(" ".join(missing))
CHECK
}

find_python() {
    local candidate lack reasons=""
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        command -v "$candidate" >/dev/null || continue
        lack=$(lacks "$candidate")
        if [ -z "$lack" ]; then
            echo "$candidate"
            return
        fi
        reasons+="; $candidate lacks: $lack"
    done
    fail "no usable Python 3.11 to 3.13${reasons}. On Debian: apt-get install python3 python3-venv python3-dev"
}

# Compiling an engine hands torch's paths to the compiler unquoted. Where they hold a space, Python
# is shown the packages through a link that has none.
link_without_space() {
    local site parent
    site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    rm -f "$site/path_without_space.pth"
    [[ "$site" =~ [[:space:]] ]] || return 0
    for parent in "${XDG_CACHE_HOME:-$HOME/.cache}" "/var/tmp/$(id -un)"; do
        [[ "$parent" =~ [[:space:]] ]] || break
    done
    mkdir -p "$parent/diffusiongemma-triton"
    local link="$parent/diffusiongemma-triton/site-$(pwd | sha256sum | cut -c1-12)"
    ln -sfn "$site" "$link"
    cat > "$site/path_without_space.pth" <<PTH
import sys; sys.path.insert([p.endswith("site-packages") for p in [*sys.path, "site-packages"]].index(True), "$link")
PTH
}

if [ "${1:-}" = --check ]; then
    find_python
    exit 0
fi
if [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(stamp)" ] && .venv/bin/python -c ''; then
    echo "setup: .venv is up to date"
    exit 0
fi

[ "$(uname -sm)" = "Linux x86_64" ] || fail "the embedded server runs on x86-64 Linux only"
# shellcheck disable=SC2086  # CXX may hold a launcher and options
command -v ${CXX:-g++} >/dev/null || fail "no C++ compiler. On Debian: apt-get install g++"

if [ -f "$STAMP" ] && [ "$(head -n 1 "$STAMP")" != "$(pwd)" ]; then
    echo "setup: .venv was made for another place"
    rm -rf .venv
fi
if ! .venv/bin/python -c '' 2>/dev/null; then
    python=$(find_python)
    echo "setup: making .venv with $("$python" --version) ($(command -v "$python"))"
    "$python" -m venv --clear .venv
fi
# shellcheck disable=SC2206  # PIP_FLAGS is a list of options
install=(.venv/bin/python -m pip install -qq --disable-pip-version-check ${PIP_FLAGS:-})
echo "setup: installing packages (minutes the first time)"
"${install[@]}" "$PIP" "setuptools>=77" wheel
"${install[@]}" --no-build-isolation --editable ".[dev]"
# Without its dependencies: they would bind the versions of packages that only its clients use.
"${install[@]}" --no-deps "$SERVER"
link_without_space
echo "setup: compiling the CPU kernels"
.venv/bin/python -m plugins.library >/dev/null
stamp > "$STAMP"
echo "setup: done"
