# Sourced, with $target set: finds Node.js, Python and Go, and installs what a fresh Debian lacks where
# build outputs go. Whatever is fetched comes from PyPI, by pip, pinned by hash.

toolchain="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
venv="$target/tools/python"
export PATH="$PATH:$venv/bin"

# With INSTALL_ONLY set, a test ends where it has all that it needs: `make test` installs beside other work.
all_is_there() { [ -z "${INSTALL_ONLY:-}" ] || exit 0; }

# A Python of our own, so that nothing is installed into the machine's.
find_python() {
    [ -x "$venv/bin/pip" ] && return
    if ! python3 -m venv "$venv" >/dev/null 2>&1; then
        local root=
        [ "$(id -u)" = 0 ] || root=sudo
        $root apt-get update -q >&2
        $root apt-get install -qy python3 python3-venv >&2
        python3 -m venv --clear "$venv"
    fi
}

# Each pinned by hash. One at a time, as suites may run beside each other.
install_wheels() { # REQUIREMENTS
    mkdir -p "$target/tools"
    {
        flock 9
        find_python
        cmp -s "$1" "$venv/.$(basename "$1")" && return
        "$venv/bin/pip" install --quiet --no-deps --require-hashes -r "$1" >&2 || return
        cp "$1" "$venv/.$(basename "$1")"
    } 9>"$target/tools/lock"
}

# Node.js 20 is the oldest that the suite runs on.
find_node() {
    local major
    major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
    if [ "$major" -lt 20 ] || ! command -v npm >/dev/null; then
        install_wheels "$toolchain/node.txt"
        export PATH="$venv/bin:$PATH"
    fi
    node --version >/dev/null
    npm --version >/dev/null 2>&1
}

install_redis() {
    local as_root=
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    # Debian would start it, at a port that somebody may need: `env` reaches behind sudo.
    # shellcheck disable=SC2086 # a command and its flag
    $as_root apt-get update -q >&2 &&
        $as_root env RUNLEVEL=1 apt-get install -qy --no-install-recommends redis-server >&2
}

# In CI there is a Redis or the checks with one have failed; on a machine that gets none they are skipped, and counted so.
find_redis() {
    if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then return; fi
    install_redis && return
    echo "no Redis, and it cannot be installed from Debian" >&2
    [ "${CI:-}" != true ] || exit 1
    printf 'redis\tno Redis, and it cannot be installed from Debian\n' >>"${TEST_SKIPPED:-/dev/null}"
    export WITHOUT_REDIS=1
}

# Go as go.mod says.
find_go() { # VERSION
    local version
    version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || echo go0.0)
    if ! printf 'go%s\n%s\n' "$1" "$version" | sort --check=quiet --version-sort; then
        install_wheels "$toolchain/go.txt"
        export PATH="$venv/bin:$PATH"
    fi
    go version >/dev/null
}
