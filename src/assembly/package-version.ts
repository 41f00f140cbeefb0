/** The version of this package, as its package.json says it. */

import { readFileSync } from 'node:fs';

/** Such as `0.1.0`. The file is two folders up, from src/assembly and from dist/assembly alike. */
export function packageVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { readonly version: string }).version;
}
