# Sourced by .ci/test and .ci/torture: runs their parts one after the other, or some beside another that waits, and sums up
# what they found.
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
declare -A child=() name_of=() begun_s=() bound_s=() shown_by=()
sleeper=''
trap 'interrupted' INT TERM
interrupted() {
    local name
    kill "$sleeper" 2>/dev/null || true
    for name in "${!child[@]}"; do end_session "${child[$name]}"; done
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
progress_of() { tr '\r' '\n' <"$results/$1.PROGRESS" | awk 'NF { last = $0 } END { print last }'; }

begin_part() { # NAME BOUND_S COMMAND...: with the command before it
    local name=$1 bound=$2 file
    shift 2
    for file in COUNTS SKIPPED AMOUNT PROGRESS; do
        export "TEST_$file=$results/$name.$file"
        : >"$results/$name.$file"
    done
    begun_s[$name]=$(date +%s) bound_s[$name]=$bound
    # bash has what it starts beside itself ignore Ctrl-C, and the programs of tests would inherit that.
    setsid env --default-signal=INT,QUIT "$@" \
        timeout --kill-after=10 "$bound" "$script" --part "$name" </dev/null &
    child[$name]=$! name_of[$!]=$name
}

end_part() { # NAME STATUS
    local name=$1 status=$2 seconds
    end_session "${child[$name]}"
    unset "child[$name]"
    # All that it said comes before how it ended.
    [ -z "${shown_by[$name]:-}" ] || wait "${shown_by[$name]}" || true
    seconds=$(($(date +%s) - begun_s[$name]))
    if [ "$status" != 0 ] && [ "$seconds" -ge "${bound_s[$name]}" ]; then
        echo "=== $name: HANGS: not done after ${bound_s[$name]} s, and ended"
    fi
    printf '=== %s: %s%s s\n' "$name" "$([ "$status" = 0 ] || echo 'FAILED, ')" "$seconds"
    .ci/count part "$name" "$status" "$seconds" "$results/$name".{COUNTS,SKIPPED,AMOUNT} >>"$results/table"
}

# Waits for all that began, and says how far they are meanwhile.
end_parts() {
    local name ended status
    sleeper=''
    while [ ${#child[@]} -gt 0 ]; do
        if [ -z "$sleeper" ]; then
            sleep "$PROGRESS_S" &
            sleeper=$!
        fi
        status=0
        wait -n -p ended "${child[@]}" "$sleeper" || status=$?
        if [ -z "${ended:-}" ]; then echo "bash lost a process that it waits for" >&2; exit 1; fi
        if [ "$ended" != "$sleeper" ]; then
            end_part "${name_of[$ended]}" "$status"
            continue
        fi
        sleeper=''
        for name in "${!child[@]}"; do
            echo "... $name: $(($(date +%s) - begun_s[$name])) of at most ${bound_s[$name]} s; $(progress_of "$name")"
        done
    done
    kill "$sleeper" 2>/dev/null || true
    wait "$sleeper" 2>/dev/null || true
}

# A part, and others beside it, which are shown once all are over. Those with a tilde have the processors when nobody else wants them.
run_together() { # NAME:BOUND_S [+NAME:BOUND_S|~NAME:BOUND_S]...
    local each name beside=("${@:2}")
    printf '\n=== %s\n' "${*%:*}"
    for each in "${beside[@]}"; do
        name=${each%:*} name=${name:1}
        case $each in
            +*) begin_part "$name" "${each#*:}" ;;
            ~*) begin_part "$name" "${each#*:}" chrt --idle 0 ;;
        esac >"$results/$name.log" 2>&1
    done
    name=${1%:*}
    begin_part "$name" "${1#*:}" >"$results/$name.log" 2>&1
    tail -n +1 -s 0.1 -f --pid="${child[$name]}" "$results/$name.log" &
    shown_by[$name]=$!
    end_parts
    for each in "${beside[@]%:*}"; do
        printf '\n=== %s said:\n' "${each:1}"
        cat "$results/${each:1}.log"
    done
}

# What failed, once more, for whoever sees only the end; the list of what was skipped, a table, and the closing line. Fails if
# anything failed.
close() {
    local file name failed
    while IFS=$'\t' read -r name _ _ failed _; do
        [ "$failed" != 0 ] && [ -e "$results/$name.log" ] || continue
        printf '\n=== %s failed:\n' "$name"
        .ci/count failures "$results/$name.log"
    done <"$results/table"
    printf '\n'
    for file in "$results"/*.SKIPPED; do
        awk -F '\t' -v part="$(basename "$file" .SKIPPED)" \
            '!seen[$1]++ { printf "SKIPPED in %s: %s: %s\n", part, $1, $2 }' "$file"
    done
    .ci/count sum "$(basename "$script")" "$(($(date +%s) - begun))" "$results/table"
}

# Runs the parts, or those that are chosen by name, and closes. Ends with 0 only if nothing failed. One with a plus or a tilde
# runs beside those before it, which wait for most of their time; with a tilde, at idle priority.
run_parts() { # CHOSEN [+|~]NAME:BOUND_S...
    local each name chosen=" $1 " names=' ' together=()
    shift
    for each in "$@"; do name=${each%:*} names+="${name#[+~]} "; done
    for each in $chosen; do
        [[ "$names" == *" $each "* ]] || { echo "there is no part $each; there are$names" >&2; exit 2; }
    done
    rm -rf "$results"
    mkdir -p "$results"
    export RESULTS=$results
    for each in "$@"; do
        name=${each%:*} name=${name#[+~]}
        if [ ${#together[@]} -gt 0 ] && [[ "$each" != [+~]* ]]; then
            run_together "${together[@]}"
            together=()
        fi
        [ -z "${chosen// /}" ] || [[ "$chosen" == *" $name "* ]] || continue
        # The first of those that run together has them to itself, whatever the list says.
        [ ${#together[@]} -gt 0 ] || each=${each#[+~]}
        together+=("$each")
    done
    [ ${#together[@]} = 0 ] || run_together "${together[@]}"
    close
}
