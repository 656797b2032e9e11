#!/usr/bin/env bash
# A decision and its reward, with curl. Every request has an id, so it can be repeated safely.
set -euo pipefail
url="${DYCLU_URL:-http://127.0.0.1:8321}"
user="${DYCLU_USER:-ana}"
id="$user-$(date +%s%N)" # any name that is used once

# --retry repeats a request that got no answer, or one that may succeed later.
ask() {
  curl --silent --show-error --fail-with-body --max-time 5 --retry 5 --retry-connrefused \
    --header 'Content-Type: application/json' "$@"
}

decided=$(ask "$url/v1/decisions" --data @- <<JSON
{"user": "$user", "decision_id": "$id",
 "arms": [{"id": "red", "features": [1, 0]}, {"id": "blue", "features": [0, 1]}]}
JSON
)
echo "show $(sed -E 's/.*"arm":"([^"]*)".*/\1/' <<<"$decided")"

reward="{\"value\": 1, \"reward_id\": \"$id-click\"}"
for _ in first again; do # the second one is recognised by its id
  ask "$url/v1/decisions/$id/reward" --data "$reward" |
    sed -E 's/.*"repeated":false.*/learnt/; s/.*"repeated":true.*/learnt before/'
  echo
done
