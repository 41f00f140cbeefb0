/** Pages that quote code or data of the repository match it; the examples, and the commands of the README and the guides, run. */

import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CONFIG_PAGE, configPage } from '../scripts/config-doc.ts';
import * as hlthunk from '../src/hlthunk.ts';
import { built, ROOT } from './fixtures/built.ts';
import { DocShell } from './fixtures/doc-shell.ts';
import { functionsOf } from './fixtures/misuse.ts';

const EXAMPLES = join(ROOT, 'examples');
const LINES_MAX = 22;
const README_LINES_MAX = 120;

/** The last line of the output of an example. */
const LAST_LINES: Readonly<Record<string, RegExp>> = {
  'any-ucx-program.ts': /^hello over (libucx|native)$/,
  'checkpoint-load.ts': /^64 of 64 shards on 8 cards are as in the file$/,
  'collectives.ts': /^the sum of 4 gradients is in the HBM of every rank$/,
  'hlthunk-dma.ts': /^the same bytes came back$/,
  'kv-cache-transfer.ts': /^192 of 192 blocks are in the HBM of the decode process as they were$/,
  'put-get.ts': /^the same bytes came back$/,
  'two-processes.ts': /^the answer, over posix\/memory: hello, line 1, line 2, line 3; the bytes are in the HBM$/,
};

/** An example as in a page: with the name of the package, and without its file comment. */
function asShown(file: string): string {
  const text = readFileSync(join(EXAMPLES, file), 'utf8');
  return text.replace(/^\/\*\*[\s\S]*?\*\/\n\n/, '').replaceAll("'../src/index.ts'", "'gaudi-ucx'");
}

/** A page without the padding of table columns. */
function unpadded(page: string): string {
  return page.replace(/^\|.*$/gm, (row) => row.replace(/ +/g, ' ').replace(/\| ?-+(?= ?\|)/g, '| -'));
}

const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

describe('README.md', () => {
  const blocks = [
    ...README.matchAll(/<!-- example: examples\/(\S+) -->\n```ts\n([\s\S]*?)```\n<!-- example: end -->/g),
  ];

  it('shows the examples as they are', () => {
    expect(blocks.map(([, file]) => file)).toEqual(['put-get.ts']);
    for (const [, file, shown] of blocks) expect(shown).toBe(asShown(file!));
  });

  it('fits on two screens', () => {
    expect(README.split('\n').length - 1).toBeLessThanOrEqual(README_LINES_MAX);
  });

  it('has one picture', () => {
    expect(README.match(/^```mermaid$|!\[/gm)).toEqual(['```mermaid']);
  });

  it('names no commands but those of the gate and of a full run', () => {
    const named = [...README.matchAll(/`((?:npm|npx|node) [^`\n]+)`/g)].map((match) => match[1]);
    expect([...new Set(named)].sort()).toEqual(['npm install', 'npm run test:full', 'npm test']);
  });

  it('keeps them short', () => {
    for (const [, , shown] of blocks) expect(shown!.split('\n').length - 1).toBeLessThanOrEqual(LINES_MAX);
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

/** Levels of messages that a command may write to standard error. */
const HARMLESS = /^\[\d+\.\d+\] \[\S+\] +\S+ UCX {2}(INFO|DEBUG) /;
const PAGES = ['README.md', ...readdirSync(join(ROOT, 'docs/guide')).map((file) => `docs/guide/${file}`)];

/** A block of commands of a page. */
interface Commands {
  readonly page: string;
  readonly text: string;
  /** Why it does not run, from the page. */
  readonly exception: string | undefined;
}

/** The blocks of commands of a page: `sh`, and those without a language. A comment `not run: <reason>` before a block exempts it. */
function commandsOf(page: string, markdown: string): Commands[] {
  const blocks = markdown.matchAll(/(?:<!-- not run: (.+) -->\n)?^```(\w*)\n([\s\S]*?)^```$/gm);
  return [...blocks]
    .filter(([, , language]) => language === '' || language === 'sh')
    .map(([, exception, , text]) => ({ page, text: text!, exception }));
}

describe('commands', { timeout: 240_000 }, () => {
  const all = PAGES.flatMap((page) => commandsOf(page, readFileSync(join(ROOT, page), 'utf8')));
  /** The two commands of the README: .ci/run and npm test run them. */
  const GATE = ['npm install && npm run demo', 'npm install && npm test'];
  const run = all.filter(({ text, exception }) => exception === undefined && !GATE.includes(text.trim()));

  it('of the README are those of the gate', () => {
    expect(all.filter(({ page }) => page === 'README.md').map(({ text }) => text.trim())).toEqual(GATE);
  });

  it('occur in one page only', () => {
    const lines = run.flatMap(({ text }) => text.trimEnd().split('\n'));
    const shared = /^npx gaudi-ucx (node (down|status)|info -s)$/;
    const twice = lines.filter((line, index) => lines.indexOf(line) !== index && !shared.test(line));
    expect(twice).toEqual([]);
  });

  it('are found, with their exceptions', () => {
    const page =
      'a\n```sh\none\ntwo\n```\n```ts\nthree\n```\n<!-- not run: no card -->\n```sh\nfour\n```\n```\nfive\n```\n';
    expect(commandsOf('x', page)).toEqual([
      { page: 'x', text: 'one\ntwo\n', exception: undefined },
      { page: 'x', text: 'four\n', exception: 'no card' },
      { page: 'x', text: 'five\n', exception: undefined },
    ]);
  });

  it('fail with their output', async () => {
    await using shell = await DocShell.open('');
    const [known, unknown, foreign] = await shell.run('npx gaudi-ucx --version\nnpx gaudi-ucx nothing\nnpx other\n');
    expect(known).toMatchObject({ code: 0, out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/), err: '' });
    expect(unknown).toMatchObject({ code: 2, out: '', err: expect.stringContaining('unknown command') });
    expect(foreign).toMatchObject({ code: 127, out: '' });
  });

  it.each(run.map(({ page, text }) => [page, text.split('\n', 1)[0], text]))(
    'of %s run: %s',
    async (_page, _first, text) => {
      await using shell = await DocShell.open(text!);
      const printed = await shell.run(text!);
      const failed = printed.filter(
        ({ code, err }) => code !== 0 || err.split('\n').some((line) => line !== '' && !HARMLESS.test(line)),
      );
      expect(failed).toEqual([]);
      // All but those that only write a file must print something.
      const silent = printed.filter(({ line, out, err }) => `${out}${err}`.trim() === '' && !line.includes(' > '));
      expect(silent).toEqual([]);
      if (text!.endsWith('node down\n')) expect(printed.at(-1)!.out).toMatch(/^node server \d+ has ended$/m);
    },
  );
});
