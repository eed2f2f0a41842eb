#!/usr/bin/env bash
# A worker for Detent's Redis Streams in shell and redis-cli, one task at a time. It needs Redis alone:
#   REDIS_URL=redis://127.0.0.1:6379 ./streams_worker.sh
# The protocol is described in docs/redis-streams.md. What a tool does may happen twice: check the idempotency key.
set -euo pipefail

TASKS=stream:task RESULTS=stream:result GROUP=cg:workers
ME="shell-$(hostname)-$$"
read -ra CLI <<<"${REDIS_CLI:-redis-cli}"
redis() { "${CLI[@]}" -u "${REDIS_URL:-redis://127.0.0.1:6379}" --raw "$@"; }
say() { redis XADD "$RESULTS" '*' task_id "$task_id" message_id "$message_id" worker "$ME" "$@" >/dev/null; }

# Each tool reads its payload from standard input and prints its output as JSON.
run() {
  case "$1" in
    text.bytes) printf '{"bytes":%d}' "$(wc -c)" ;;
    shell.fails) echo "as its name says" >&2; return 1 ;;
    *) return 127 ;;
  esac
}

running=1
trap 'running=' TERM INT
redis XGROUP CREATE "$TASKS" "$GROUP" 0 MKSTREAM >/dev/null 2>&1 || true
echo "$ME is waiting for tasks"
while [ "$running" ]; do
  mapfile -t lines < <(redis XREADGROUP GROUP "$GROUP" "$ME" COUNT 1 BLOCK 1000 STREAMS "$TASKS" '>' 2>/dev/null)
  [[ ${lines[0]-} == NOGROUP* ]] && redis XGROUP CREATE "$TASKS" "$GROUP" 0 MKSTREAM >/dev/null # it came back empty
  [[ ${lines[0]-} == "$TASKS" ]] || continue
  declare -A task=()
  for ((at = 2; at + 1 < ${#lines[@]}; at += 2)); do task[${lines[at]}]=${lines[at + 1]}; done
  message_id=${lines[1]} task_id=${task[task_id]-}
  say status claimed
  code=0
  output=$(printf '%s' "${task[payload]-}" | run "${task[tool_name]-}" 2>"/tmp/$ME") || code=$?
  case $code in
    0) say status succeeded output "$output" ;;
    127) say status failed error "no tool ${task[tool_name]-}" error_code TOOL_UNKNOWN retryable false ;;
    *) say status failed error "$(cat "/tmp/$ME")" error_code EXECUTION_FAILED ;;
  esac
  redis XACK "$TASKS" "$GROUP" "$message_id" >/dev/null # last, when the result is on its stream
  rm -f "/tmp/$ME"
done
