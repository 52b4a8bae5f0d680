# Sourced by .ci/test and .ci/torture: runs their parts one after the other, and sums up what they found.
#
# A part is a function `part_NAME` of the script that sources this. It runs in a process of its own
# (`SCRIPT --part NAME`), which is ended with all that it started when its bound is over. A part that
# fails does not keep the later ones from running.
#   $TEST_COUNTS    a part that counts writes lines `PASSED FAILED` to it; one that writes none counts as one check
#   $TEST_SKIPPED   what this machine cannot test: lines `NAME<TAB>WHY`
#   $TEST_AMOUNT    how much the part ran, in words
#   $TEST_PROGRESS  how far the part is: its last line is shown every $PROGRESS_S seconds
# Knows nothing of what the parts do.

PROGRESS_S=${PROGRESS_S:-30}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=$(realpath "$0")
cd "$root"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
# What helps the next build makes the first one slower, and takes thrice the disk.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
export PATH="$CARGO_TARGET_DIR/tools/bin:$PATH"
results=${RESULTS:-$CARGO_TARGET_DIR/$(basename "$script")-results}

say_skipped() { printf '%s\t%s\n' "$1" "$2" >>"$TEST_SKIPPED"; } # NAME WHY

if [ "${1:-}" = --part ]; then
    # The script defines the functions, and calls `run_parts` last: that runs this one alone.
    run_parts() { "part_$part"; }
    part=$2
    return
fi

begun=$(date +%s)
child='' sleeper=''
trap 'interrupted' INT TERM
interrupted() {
    kill "$sleeper" 2>/dev/null || true
    [ -z "$child" ] || end_session "$child"
    printf 'interrupted\tthe parts after these did not run\t0\t1\t0\t0\n' >>"$results/table"
    close || true
    exit 130
}

# Ends what is left of a part: each part has a session of its own, which its programs' process groups
# do not leave.
end_session() { # ID
    local signal pids
    for signal in TERM KILL; do
        pids=$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v id="$1" '
            { pid = $1; sub(/^.*\) /, "") }
            $4 == id && $1 != "Z" { print pid }') || true
        [ -n "$pids" ] || return 0
        # shellcheck disable=SC2086 # they are numbers
        kill -"$signal" $pids 2>/dev/null || true
        [ "$signal" = KILL ] || sleep 2
    done
}

# What a part wrote last of how far it is.
progress_of() { tr '\r' '\n' <"$TEST_PROGRESS" | awk 'NF { last = $0 } END { print last }'; }

run_part() { # NAME BOUND_S
    local name=$1 bound=$2 status=0 ended='' part_begun seconds
    part_begun=$(date +%s)
    for file in TEST_COUNTS TEST_SKIPPED TEST_AMOUNT TEST_PROGRESS; do
        export "$file=$results/$name.${file#TEST_}"
        : >"${!file}"
    done
    printf '\n=== %s\n' "$name"
    # bash has what it starts beside itself ignore Ctrl-C, and the programs of tests would inherit that.
    setsid env --default-signal=INT,QUIT \
        timeout --kill-after=10 "$bound" "$script" --part "$name" </dev/null &
    child=$!
    until [ "$ended" = "$child" ]; do
        sleep "$PROGRESS_S" &
        sleeper=$!
        status=0
        wait -n -p ended "$child" "$sleeper" || status=$?
        [ "$ended" = "$child" ] || echo "... $name: $(($(date +%s) - part_begun)) of at most $bound s; $(progress_of)"
    done
    kill "$sleeper" 2>/dev/null || true
    wait "$sleeper" 2>/dev/null || true
    end_session "$child"
    child=''
    seconds=$(($(date +%s) - part_begun))
    if [ "$status" != 0 ] && [ "$seconds" -ge "$bound" ]; then
        echo "=== $name: HANGS: not done after $bound s, and ended"
    fi
    printf '=== %s: %s%s s\n' "$name" "$([ "$status" = 0 ] || echo 'FAILED, ')" "$seconds"
    .ci/count part "$name" "$status" "$seconds" "$TEST_COUNTS" "$TEST_SKIPPED" "$TEST_AMOUNT" >>"$results/table"
}

# The list of what was skipped, a table, and the closing line; fails if anything failed.
close() {
    local file
    printf '\n'
    for file in "$results"/*.SKIPPED; do
        awk -F '\t' -v part="$(basename "$file" .SKIPPED)" \
            '!seen[$1]++ { printf "SKIPPED in %s: %s: %s\n", part, $1, $2 }' "$file"
    done
    .ci/count sum "$(basename "$script")" "$(($(date +%s) - begun))" "$results/table"
}

# Runs the parts, or those that are chosen by name, and closes. Ends with 0 only if nothing failed.
run_parts() { # CHOSEN NAME:BOUND_S...
    local each chosen=" $1 " names
    shift
    names=" ${*%:*} "
    for each in $chosen; do
        [[ "$names" == *" $each "* ]] || { echo "there is no part $each; there are$names" >&2; exit 2; }
    done
    rm -rf "$results"
    mkdir -p "$results"
    export RESULTS=$results
    for each in "$@"; do
        if [ -z "${chosen// /}" ] || [[ "$chosen" == *" ${each%:*} "* ]]; then
            run_part "${each%:*}" "${each#*:}"
        fi
    done
    close
}
