/** docs/guide/versions.md names the version of every protocol between processes: those of the constants in the sources. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { NODE_RELEASES } from '../scripts/node-releases.ts';
import { ROOT } from './fixtures/tools/built.ts';

const PAGE = readFileSync(join(ROOT, 'docs/guide/versions.md'), 'utf8');
/** A version, and not the offset of one (`AT_VERSION`). */
const VERSION = /^(?:export )?const (?!AT_)(?:[A-Z]+_)*VERSION = (\d+);/gm;

/** The versions that a source declares. */
function versionsIn(text: string): ReadonlySet<number> {
  return new Set([...text.matchAll(VERSION)].map(([, version]) => Number(version)));
}

const SOURCES = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  .map((file) => `src/${file}`)
  .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'));

describe('docs/guide/versions.md', () => {
  it('has a row with the version for each source that declares one', () => {
    const rows = [...PAGE.matchAll(/^\| [^|]+ \| (\d+) \| [^|]+ \| `(src\/[^`]+)` \|$/gm)];
    const told = new Map(rows.map(([, version, file]) => [file!, [Number(version)]]));
    const declared = SOURCES.map((file) => [file, [...versionsIn(readFileSync(join(ROOT, file), 'utf8'))]] as const);
    expect(told).toEqual(new Map(declared.filter(([, versions]) => versions.length > 0)));
    expect(told.size).toBeGreaterThan(15);
  });

  it('reads every form of a version', () => {
    const text = 'const VERSION = 3;\nexport const TCP_VERSION = 4;\nconst AT_VERSION = 0;\nconst VERSION_MASK = 15;\n';
    expect([...versionsIn(text)]).toEqual([3, 4]);
  });

  it('README and the page say until when the oldest line of Node.js stays', () => {
    const [oldest] = Object.keys(NODE_RELEASES);
    const stays = new RegExp(`Node\\.js ${oldest}\\b[^|\\n]*until (version )?1\\.0`);
    expect(PAGE).toMatch(stays);
    expect(readFileSync(join(ROOT, 'README.md'), 'utf8')).toMatch(stays);
  });
});
