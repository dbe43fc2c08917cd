// Differences between two versions, side by side.

export interface DiffFile { path: string; status: string; hunks: { old_start: number; new_start: number; lines: { kind: string; text: string }[] }[] }

interface Pair { left: { n: number; text: string } | null; right: { n: number; text: string } | null; isSame: boolean }

/** Removed lines beside the added ones that took their place. */
export function pairs(hunk: DiffFile["hunks"][number]): Pair[] {
  const out: Pair[] = [];
  let removed: { n: number; text: string }[] = []; let added: { n: number; text: string }[] = [];
  let left = hunk.old_start; let right = hunk.new_start;
  const flush = () => {
    for (let i = 0; i < Math.max(removed.length, added.length); i++) out.push({ left: removed[i] ?? null, right: added[i] ?? null, isSame: false });
    removed = []; added = [];
  };
  for (const line of hunk.lines) {
    if (line.kind === "-") removed.push({ n: left++, text: line.text });
    else if (line.kind === "+") added.push({ n: right++, text: line.text });
    else { flush(); out.push({ left: { n: left++, text: line.text }, right: { n: right++, text: line.text }, isSame: true }); }
  }
  flush();
  return out;
}

export function DiffView({ files, truncated }: { files: DiffFile[]; truncated?: boolean }) {
  if (!files.length) return <p class="quiet">No difference.</p>;
  return <div class="diffs">{files.map((file) => <section key={file.path} class="diff" aria-label={file.path}>
    <h3>{file.path} <small class="quiet">{file.status}</small></h3>
    <div class="scroll" tabIndex={0} role="region" aria-label={`Differences in ${file.path}`}><table>{file.hunks.map((hunk, i) => <tbody key={i}>{pairs(hunk).map((pair, k) => <tr key={k}>
      <td class="n">{pair.left?.n}</td><td class={pair.isSame ? "" : pair.left ? "removed" : "none"}><code>{pair.left?.text}</code></td>
      <td class="n">{pair.right?.n}</td><td class={pair.isSame ? "" : pair.right ? "added" : "none"}><code>{pair.right?.text}</code></td></tr>)}</tbody>)}</table></div>
  </section>)}{truncated && <p class="quiet">The rest is left out.</p>}</div>;
}
