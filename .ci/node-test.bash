# Sourced by tests that are written for `node --test`: runs such a file, and counts what passed and what has not.

node_test() { # FILE
    local status=0 tap="${1%/*}/tap"
    node --test --test-timeout=300000 --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=tap --test-reporter-destination="$tap" "$1" || status=$?
    # The sums at the end of its report: what did not pass has failed.
    awk '/^# tests / { all = $3 } /^# pass / { passed = $3 } END { print passed + 0, all - passed }' "$tap" \
        >>"${TEST_COUNTS:-/dev/null}"
    return "$status"
}
