#!/usr/bin/env bash
# Build the image, start it with compose, make one decision, and remove everything again.
set -euo pipefail
cd "$(dirname "$0")"
folder=$(mktemp -d)
url="${DYCLU_URL:-http://127.0.0.1:8321}"

# dyclu.toml with keys of its own in the place of the two placeholders.
cat > "$folder/compose.yaml" <<YAML
services: { dyclu: { volumes: ["$folder/dyclu.toml:/etc/dyclu/dyclu.toml:ro"] } }
YAML
compose() { docker compose --file compose.yaml --file "$folder/compose.yaml" "$@"; }
trap 'compose down --volumes; rm -r "$folder"' EXIT

compose build dyclu
operator=$(docker run --rm dyclu dyclu key --role operator)
caller=$(docker run --rm dyclu dyclu key)
digest() { grep -o 'sha256:[0-9a-f]*' <<<"$1"; }
awk -v first="$(digest "$operator")" -v then="$(digest "$caller")" '
  /sha256:0+"/ { sub(/sha256:0+/, n++ ? then : first) } { print }' dyclu.toml > "$folder/dyclu.toml"
chmod 0755 "$folder"
chmod 0644 "$folder/dyclu.toml"
compose up --detach --wait --wait-timeout 180 dyclu

features="[$(printf '0,%.0s' {1..24})1]"
arms="[{\"id\": \"red\", \"features\": $features}]"
decided=$(curl --silent --show-error --fail-with-body --max-time 5 --retry 5 "$url/v1/decisions" \
  --header "Authorization: Bearer $(sed -n 's/^key: //p' <<<"$caller")" \
  --header 'Content-Type: application/json' --data "{\"user\": \"ana\", \"arms\": $arms}")
grep '"arm":"red"' <<<"$decided"
