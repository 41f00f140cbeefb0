/** Finds the known name nearest to a misspelt one. */

/**
 * The candidate with the smallest edit distance to `name`, case-insensitive. Among equals, the one that shares most words with the name, then the
 * alphabetically first. Undefined if every distance exceeds a third of the length of the name.
 */
export function nearestName(name: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(name.length / 3));
  let bestWords = 0;
  const given = name.toUpperCase();
  const words = new Set(given.split('_'));
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - name.length) > bestDistance) continue;
    const other = candidate.toUpperCase();
    const distance = editDistance(given, other);
    if (distance > bestDistance) continue;
    const shared = other.split('_').filter((word) => words.has(word)).length;
    const isBetter = distance < bestDistance || best === undefined || shared > bestWords;
    if (!isBetter && (shared < bestWords || candidate >= best!)) continue;
    best = candidate;
    bestDistance = distance;
    bestWords = shared;
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
