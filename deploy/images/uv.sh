#!/bin/sh
# uv inside an image build: takes the machine's CA bundle and package index from build secrets (both optional),
# so that neither becomes part of the image, and leaves no cache behind.
set -eu
if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi
if [ -s /run/secrets/uv.toml ]; then export UV_CONFIG_FILE=/run/secrets/uv.toml; fi
export UV_NO_CACHE=1 UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never
exec uv "$@"
