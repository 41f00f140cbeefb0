/** Pages that quote code or data of the repository match it, and the examples run. The commands of the guides: test/integration/package/guide.test.ts. */

import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CONFIG_PAGE, configPage } from '../scripts/config-doc.ts';
import * as hlthunk from '../src/hlthunk.ts';
import { GaudiErrorCode, gaudiErrorStatus, Status } from '../src/index.ts';
import { functionsOf } from './fixtures/calls/misuse.ts';
import { built, ROOT } from './fixtures/tools/built.ts';

const EXAMPLES = join(ROOT, 'examples');
const LINES_MAX = 22;
const README_LINES_MAX = 110;

/** The last line of the output of an example. */
const LAST_LINES: Readonly<Record<string, RegExp>> = {
  'any-ucx-program.ts': /^hello over (libucx|native)$/,
  'checkpoint-load.ts': /^64 of 64 shards on 8 cards are as in the file$/,
  'collectives.ts': /^the sum of 4 gradients is in the HBM of every rank$/,
  'dma-buf.ts': /^nothing is left$/,
  'event-loop.ts': /^served, waited, polled, watched$/,
  'gaudi-ipc.ts': /^both processes have released the memory$/,
  'hlthunk-dma.ts': /^the same bytes came back$/,
  'kv-cache-transfer.ts': /^192 of 192 blocks are in the HBM of the decode process as they were$/,
  'memory-expert.ts': /^toy,rc,self: the same bytes by tag\/rndv\/get over rc$/,
  'put-get.ts': /^the same bytes came back$/,
  'two-processes.ts': /^the answer, over posix\/memory: hello, line 1, line 2, line 3; the bytes are in the HBM$/,
  'uct.ts': /^the same bytes arrived$/,
};

/** An example as in a page: with the name of the package, and without its file comment. */
function asShown(file: string): string {
  const text = readFileSync(join(EXAMPLES, file), 'utf8');
  return text
    .replace(/^\/\*\*[\s\S]*?\*\/\n\n/, '')
    .replace(/'(?:\.\.\/)+src\/index\.ts'/g, "'gaudi-ucx'")
    .replace(/'(?:\.\.\/)+src\/(\w+)\/index\.ts'/g, "'gaudi-ucx/$1'");
}

/** A page without the padding of table columns. */
function unpadded(page: string): string {
  return page.replace(/^\|.*$/gm, (row) => row.replace(/ +/g, ' ').replace(/\| ?-+(?= ?\|)/g, '| -'));
}

/** The examples that a page shows: their files, and the texts. */
function shownIn(page: string): readonly (readonly [file: string, shown: string])[] {
  const blocks = page.matchAll(
    /<!-- example: examples\/(\S+) -->\n```(?:js|ts)\n([\s\S]*?)```\n<!-- example: end -->/g,
  );
  return [...blocks].map(([, file, shown]) => [file!, shown!] as const);
}

const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

describe('README.md', () => {
  const blocks = shownIn(README);

  it('shows the examples as they are', () => {
    expect(blocks.map(([file]) => file)).toEqual(['put-get.ts']);
    for (const [file, shown] of blocks) expect(shown).toBe(asShown(file));
  });

  it('fits on two screens', () => {
    expect(README.split('\n').length - 1).toBeLessThanOrEqual(README_LINES_MAX);
  });

  it('has one diagram, and one picture: that of the page, which its test makes', () => {
    expect(README.match(/^```mermaid$|!\[/gm)).toEqual(['```mermaid', '![']);
    expect(README).toMatch(/^!\[[^\]]{20,}\]\(docs\/images\/web-light\.png\)$/m);
  });

  it('names no commands outside of its blocks', () => {
    const named = [...README.matchAll(/`((?:npm|npx|node) [^`\n]+)`/g)].map((match) => match[1]);
    expect(named).toEqual([]);
  });

  it('keeps them short', () => {
    for (const [, shown] of blocks) expect(shown.split('\n').length - 1).toBeLessThanOrEqual(LINES_MAX);
  });
});

describe('pages', () => {
  const linesOf = (page: string): string[] => readFileSync(join(ROOT, page), 'utf8').trimEnd().split('\n');
  const pagesOf = (folder: string): string[] => readdirSync(join(ROOT, folder)).map((file) => `${folder}/${file}`);
  const designs = pagesOf('docs/design');

  it('of the architecture tell a story in 200 lines, and each design in 150, with a picture', () => {
    expect(linesOf('docs/ARCHITECTURE.md').length).toBeLessThanOrEqual(200);
    for (const page of designs) {
      const lines = linesOf(page);
      expect([page, lines.length <= 150, lines.includes('```')]).toEqual([page, true, true]);
    }
  });

  it('of the news have one line for a change', () => {
    expect(linesOf('NEWS.md').filter((line) => line.length > 120)).toEqual([]);
  });
});

describe('guides', () => {
  const folder = join(ROOT, 'docs/guide');
  const blocks = readdirSync(folder).flatMap((page) => shownIn(readFileSync(join(folder, page), 'utf8')));

  it('show the examples as they are', () => {
    expect(blocks.length).toBeGreaterThan(0);
    for (const [file, shown] of blocks) expect(shown).toBe(asShown(file));
  });
});

describe('docs/guide/hl-thunk.md', () => {
  const guide = readFileSync(join(ROOT, 'docs/guide/hl-thunk.md'), 'utf8');
  const [, table] = guide.match(/\| C +\| Here +\|\n([\s\S]*?)\n\n/)!;
  const rows = table!.split('\n').slice(1);
  const named = rows.flatMap((row) => [...row.split('|')[2]!.matchAll(/`([a-zA-Z]+)`/g)].map(([, name]) => name!));
  /** Words in the table that are not functions of the entry: options, properties and methods. */
  const PARTS = [
    'moduleId',
    'register',
    'receive',
    'unmap',
    'map',
    'mapped',
    'usageCount',
    'deviceAddress',
    'timeoutSeconds',
    'stagedSeq',
    'encapsSignals',
  ];

  it('names existing functions', () => {
    const wrong = named.filter((name) => !(name in hlthunk) && !PARTS.includes(name));
    expect(wrong).toEqual([]);
    expect(PARTS.filter((part) => !named.includes(part))).toEqual([]);
  });

  it('covers all functions that query, wait or submit', () => {
    const calls = functionsOf(hlthunk).filter((name) =>
      /^(get|is|open|wait|signal|reserve|unreserve|engine)/.test(name),
    );
    const additions = ['isUcxError', 'openDriverNode'];
    expect(calls.filter((name) => !named.includes(name) && !additions.includes(name))).toEqual([]);
  });
});

describe.each(['dma-buf', 'event-loop', 'gaudi-ipc', 'uct'])('docs/guide/%s.md', (name) => {
  const guide = readFileSync(join(ROOT, `docs/guide/${name}.md`), 'utf8');
  const linesOf = (text: string): string[] => text.split('\n').map((line) => line.trim());

  it('links to its program, and shows lines of it only', () => {
    expect(guide).toContain(`[examples/${name}.ts](../../examples/${name}.ts)`);
    const program = new Set(linesOf(readFileSync(join(EXAMPLES, `${name}.ts`), 'utf8')));
    const shown = [...guide.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].flatMap(([, block]) => linesOf(block!));
    expect(shown.length).toBeGreaterThan(5);
    expect(shown.filter((line) => !program.has(line) && line !== '')).toEqual([]);
  });
});

describe('docs/ERRORS.md', () => {
  it.each(Object.values(GaudiErrorCode))('gives the status of %s', (code) => {
    const page = readFileSync(join(ROOT, 'docs/ERRORS.md'), 'utf8');
    const [, status] = new RegExp(`^\\| \`${code}\` +\\| (\\w+)`, 'm').exec(page)!;
    expect(Status[status as keyof typeof Status]).toBe(gaudiErrorStatus(code));
  });
});

describe('docs/CONFIG.md', () => {
  it('has every variable of the sources (npx tsx scripts/config-doc.ts writes them)', () => {
    expect(unpadded(readFileSync(CONFIG_PAGE, 'utf8'))).toBe(unpadded(configPage()));
  });
});

describe('examples', () => {
  it.each(readdirSync(EXAMPLES).filter((file) => file.endsWith('.ts')))('%s runs on the emulated node', (file) => {
    const output = execFileSync(process.execPath, [built(join(EXAMPLES, file))], {
      cwd: ROOT,
      encoding: 'utf8',
      env: { ...process.env, UCX_GAUDI_DRIVER: 'emulator' },
      timeout: 60_000,
    });
    expect(output.trimEnd().split('\n').at(-1)).toMatch(LAST_LINES[file]!);
  });
});
