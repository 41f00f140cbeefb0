/** The commands of the README and the guides run. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../../fixtures/tools/built.ts';
import { DocShell } from '../../fixtures/tools/doc-shell.ts';

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

  it('of the README are those of the gate, a program under run, and coll', () => {
    const shown = all.filter(({ page }) => page === 'README.md').map(({ text }) => text.trim());
    expect(shown.filter((text) => GATE.includes(text))).toEqual(GATE);
    expect(shown.join('\n')).toMatch(/^npx gaudi-ucx run .*-- python3 /m);
    expect(shown.join('\n')).toMatch(/^npx gaudi-ucx coll /m);
    expect(shown).toHaveLength(GATE.length + 1);
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
