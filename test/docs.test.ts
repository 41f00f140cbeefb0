/** Pages that show code or data of the repository show it as it is, and the examples run. */

import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CONFIG_PAGE, configPage } from '../scripts/config-doc.ts';

const ROOT = join(import.meta.dirname, '..');
const EXAMPLES = join(ROOT, 'examples');
const LINES_MAX = 22;

/** The last line of what an example prints. */
const LAST_LINES: Readonly<Record<string, RegExp>> = {
  'put-get.ts': /^the same bytes came back$/,
  'two-processes.ts': /^the answer, over posix\/memory: hello, line 1, line 2, line 3; the bytes are in the HBM$/,
};

/** An example as a user writes it: with the name of the package, and without the comment at its head. */
function asShown(file: string): string {
  const text = readFileSync(join(EXAMPLES, file), 'utf8');
  return text.replace(/^\/\*\*[\s\S]*?\*\/\n\n/, '').replaceAll("'../src/index.ts'", "'gaudi-ucx'");
}

/** A page without the blanks and dashes by which the formatter lines up the columns of tables. */
function unpadded(page: string): string {
  return page.replace(/^\|.*$/gm, (row) => row.replace(/ +/g, ' ').replace(/\| ?-+(?= ?\|)/g, '| -'));
}

describe('README.md', () => {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const blocks = [
    ...readme.matchAll(/<!-- example: examples\/(\S+) -->\n```ts\n([\s\S]*?)```\n<!-- example: end -->/g),
  ];

  it('shows the examples as they are', () => {
    expect(blocks.map(([, file]) => file)).toEqual(['put-get.ts']);
    for (const [, file, shown] of blocks) expect(shown).toBe(asShown(file!));
  });

  it('keeps them short', () => {
    for (const [, , shown] of blocks) expect(shown!.split('\n').length - 1).toBeLessThanOrEqual(LINES_MAX);
  });
});

describe('docs/CONFIG.md', () => {
  it('has every variable of the sources (npx tsx scripts/config-doc.ts writes them)', async () => {
    expect(unpadded(readFileSync(CONFIG_PAGE, 'utf8'))).toBe(unpadded(await configPage()));
  });
});

describe('examples', () => {
  it.each(readdirSync(EXAMPLES).filter((file) => file.endsWith('.ts')))('%s runs on the emulated node', (file) => {
    const output = execFileSync(process.execPath, ['--import', 'tsx', join(EXAMPLES, file)], {
      cwd: ROOT,
      encoding: 'utf8',
      env: { ...process.env, UCX_GAUDI_DRIVER: 'emulator' },
      timeout: 15_000,
    });
    expect(output.trimEnd().split('\n').at(-1)).toMatch(LAST_LINES[file]!);
  });
});
