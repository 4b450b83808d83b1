#!/usr/bin/env bash
# Asks one yes/no question with curl: examples/clients/curl.sh [HOST:PORT]
set -euo pipefail
curl --fail-with-body --silent --show-error "http://${1:-localhost:8000}/v2/models/structured_read/generate" \
    --data '{"text_input": "I was charged twice and nobody answers. If this goes on I will write every day.",
             "questions": "{\"again\": {\"type\": \"noul\", \"instructions\": \"Will the customer write again?\"}}"}'
echo
