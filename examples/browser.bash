# Sourced by the examples' tests: a page in a real browser, Debian's Chromium, driven by playwright-core as each
# package-lock.json pins it. What is needed of npm goes where build outputs go. SCREENSHOTS=FOLDER keeps pictures.
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target="${CARGO_TARGET_DIR:-$examples/../target}"
export SENNIT="${SENNIT:-$target/debug/sennit}"
source "$examples/../conformance/durable-streams/toolchain/find.bash"
source "$examples/../.ci/node-test.bash"
find_node

install_chromium() {
    local as_root=
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    # shellcheck disable=SC2086 # a command and its flag
    $as_root apt-get update -q >&2 && $as_root apt-get install -qy --no-install-recommends chromium >&2
}

# In CI this is tested or has failed; on a machine that gets no Chromium it is skipped, and counted so.
find_chromium() {
    if ! command -v chromium >/dev/null && ! install_chromium; then
        echo "browser: no Chromium, and it cannot be installed from Debian" >&2
        [ "${CI:-}" != true ] || exit 1
        printf 'browser\tno Chromium, and it cannot be installed from Debian\n' >>"${TEST_SKIPPED:-/dev/null}"
        exit 0
    fi
}

install_packages() { # FOLDER with a package-lock.json
    cmp -s "$1/package-lock.json" "$1/node_modules/.installed" && return
    (cd "$1" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error >&2)
    cp "$1/package-lock.json" "$1/node_modules/.installed"
}
