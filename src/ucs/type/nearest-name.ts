/** Finds the known name nearest to a misspelt one. */

/**
 * The candidate with the smallest edit distance to `name`, regardless of case, the alphabetically first among equals; undefined if the distance of all
 * exceeds a third of the length of the name.
 */
export function nearestName(name: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(name.length / 3));
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - name.length) > bestDistance) continue;
    const distance = editDistance(name.toUpperCase(), candidate.toUpperCase());
    if (distance < bestDistance || (distance === bestDistance && (best === undefined || candidate < best))) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** The Levenshtein distance: insertions, deletions and replacements of one UTF-16 unit. */
export function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = previous[j - 1]! + (a.charCodeAt(i - 1) === b.charCodeAt(j - 1) ? 0 : 1);
      row.push(Math.min(replaced, previous[j]! + 1, row[j - 1]! + 1));
    }
    previous = row;
  }
  return previous[b.length]!;
}
