#!/usr/bin/env bash
# A worker for Detent's Redis Streams in bash and redis-cli, one task at a time. It connects to Redis only:
#   REDIS_URL=redis://127.0.0.1:6379 ./streams_worker.sh
# The protocol is described in docs/guides/redis-streams.md. A tool may be called twice for one task: check the idempotency key.
set -euo pipefail

TASKS=stream:task RESULTS=stream:result GROUP=cg:workers
ME="shell-$(uname -n)-$$"
read -ra CLI <<<"${REDIS_CLI:-redis-cli}"
redis() { "${CLI[@]}" -u "${REDIS_URL:-redis://127.0.0.1:6379}" --raw "$@"; }
send() { redis XADD "$RESULTS" '*' task_id "$task_id" message_id "$message_id" worker "$ME" "$@" >/dev/null; }

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
  [[ ${lines[0]-} == NOGROUP* ]] && redis XGROUP CREATE "$TASKS" "$GROUP" 0 MKSTREAM >/dev/null # Redis lost its data
  [[ ${lines[0]-} == "$TASKS" ]] || continue
  declare -A task=()
  for ((at = 2; at + 1 < ${#lines[@]}; at += 2)); do task[${lines[at]}]=${lines[at + 1]}; done
  message_id=${lines[1]} task_id=${task[task_id]-}
  send status claimed
  code=0
  output=$(printf '%s' "${task[payload]-}" | run "${task[tool_name]-}" 2>"/tmp/$ME") || code=$?
  case $code in
    0) send status succeeded output "$output" ;;
    127) send status failed error "no tool ${task[tool_name]-}" error_code TOOL_UNKNOWN retryable false ;;
    *) send status failed error "$(cat "/tmp/$ME")" error_code EXECUTION_FAILED ;;
  esac
  redis XACK "$TASKS" "$GROUP" "$message_id" >/dev/null # last, after the result was sent
  rm -f "/tmp/$ME"
done
