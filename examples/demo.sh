#!/usr/bin/env bash
# Runs the README's story on a small training, in a temporary folder: three runs, queries and a replay.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$here/train.py" "$here/make_data.py" "$folder"
cd "$folder"

say() { printf '\n$ %s\n' "$*"; "$@"; }

say python make_data.py
say python train.py
say python train.py --kwargs lr=0.1 seed=3
say python train.py --kwargs lr=0.001 epochs=3
say relive runs
say relive show last
say relive dataframe lr val_acc --where "lr < 0.1"
say relive sql "select run, lr, max(val_acc) best from frame('lr', 'val_acc') group by run, lr order by best desc"
# A value that was not logged: add the statement now, and replay.
sed -i '/optimizer.step()/a\            relive.log("grad_norm", sum(p.grad.norm().item() for p in net.parameters()))' train.py
say relive replay grad_norm "lr < 0.1 and epoch >= 1" --yes
say relive dataframe lr grad_norm --where "epoch >= 1"
say relive doctor

# The page of these runs. `relive ui` opens it in a browser until Ctrl-C; here it is entered, photographed, and ended.
printf '\n$ relive ui\n'
mkfifo address
relive ui --no-browser --port 0 > address 2> ui.log & ui=$!
trap 'kill "$ui" 2> /dev/null || true; rm -rf "$folder"' EXIT
read -r address < address
page=${address%%/login*}/
for _ in $(seq 300); do
    python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "login", timeout=10)' "$page" 2> /dev/null && break
    sleep 0.1
done
python "$here/photograph.py" "$address" "$here/../build/demo.png" | sed "s|$here/../||"
kill -INT "$ui"
wait "$ui"
printf '\nThe demo is over, and its runs are removed. In your own project, `relive ui` opens the page (http://127.0.0.1:5006).\n'
printf 'The address of the page was: %s\n' "$page"
