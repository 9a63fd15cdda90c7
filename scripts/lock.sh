#!/bin/sh
# Resolves pyproject.toml to the newest versions that go together and writes them with every file's hash. Run it under the
# oldest Python we support: what resolves there also installs under the newer ones.
set -eu
cd "$(dirname "$0")/.."
# A folder of wheels that this machine happens to have must not decide what the lock says.
unset PIP_FIND_LINKS PIP_CONSTRAINT
resolve() {
    .venv/bin/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-annotate \
        --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links "$@"
}
resolve --extra dev --output-file requirements.lock pyproject.toml
echo mkdocs-material | resolve --output-file requirements-site.lock -
