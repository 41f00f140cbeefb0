/** Pages that show code or data of the repository show it as it is, and the examples run. */

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CONFIG_PAGE, configPage } from '../scripts/config-doc.ts';
import * as hlthunk from '../src/hlthunk.ts';
import { built, ROOT } from './fixtures/built.ts';
import { MAIN } from './fixtures/command-line.ts';
import { functionsOf } from './fixtures/misuse.ts';

const EXAMPLES = join(ROOT, 'examples');
const LINES_MAX = 22;

/** The last line of what an example prints. */
const LAST_LINES: Readonly<Record<string, RegExp>> = {
  'any-ucx-program.ts': /^hello over (libucx|native)$/,
  'checkpoint-load.ts': /^64 of 64 shards on 8 cards are as in the file$/,
  'hlthunk-dma.ts': /^the same bytes came back$/,
  'kv-cache-transfer.ts': /^192 of 192 blocks are in the HBM of the decode process as they were$/,
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

const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

describe('README.md', () => {
  const blocks = [
    ...README.matchAll(/<!-- example: examples\/(\S+) -->\n```ts\n([\s\S]*?)```\n<!-- example: end -->/g),
  ];

  it('shows the examples as they are', () => {
    expect(blocks.map(([, file]) => file)).toEqual(['put-get.ts']);
    for (const [, file, shown] of blocks) expect(shown).toBe(asShown(file!));
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
  /** Words in the table that are no calls of the entry: options, properties and methods. */
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

  it('names calls that there are', () => {
    const wrong = named.filter((name) => !(name in hlthunk) && !PARTS.includes(name));
    expect(wrong).toEqual([]);
    expect(PARTS.filter((part) => !named.includes(part))).toEqual([]);
  });

  it('leaves out no call that asks, waits or submits', () => {
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

/** A port that nobody has. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Commands of the README with the build of this repository in place of the package, in a folder and on a port of their own. */
class Shell {
  readonly #env: NodeJS.ProcessEnv;
  readonly #socket: string;
  readonly #port: number;
  readonly #background: { readonly child: ChildProcess; readonly ended: Promise<unknown> }[] = [];

  constructor(folder: string, port: number) {
    this.#socket = join(folder, 'node.sock');
    const clean = Object.entries(process.env).filter(([name]) => !/UCX_|^GAUDI_|^UCT_/.test(name));
    this.#env = { ...Object.fromEntries(clean), UCX_GAUDI_DRIVER: `emulator:${this.#socket}` };
    this.#port = port;
  }

  /** Runs a line. One that ends with & is a server: it is waited for until it says something. @returns what it printed */
  async run(line: string): Promise<string> {
    const program = `exec '${process.execPath}' '${MAIN}'`;
    const isServer = line.endsWith(' &');
    const command = line
      .replace(/ &$/, '')
      .replace(/^((?:\w+='[^']*' )*)npx gaudi-ucx/, (_match, variables: string) => `export ${variables}; ${program}`)
      .replace(/ perftest\b/, ` perftest -p ${this.#port}`);
    expect(command).toContain(program);
    const child = spawn('sh', ['-c', command.replace(/^export ; /, '')], { cwd: ROOT, env: this.#env, stdio: 'pipe' });
    let out = '';
    let err = '';
    child.stdout.on('data', (data: Buffer) => {
      out += data.toString();
    });
    child.stderr.on('data', (data: Buffer) => {
      err += data.toString();
    });
    const ended = once(child, 'close').then(([code]) =>
      expect({ line, code, err }).toEqual({ line, code: 0, err: '' }),
    );
    if (isServer) {
      this.#background.push({ child, ended });
      await Promise.race([once(child.stdout, 'data'), ended]);
    } else await ended;
    return out;
  }

  /** Waits for the servers, which end by themselves. */
  async ended(): Promise<void> {
    await Promise.all(this.#background.map(({ ended }) => ended));
  }

  /** Ends what a failure has left. */
  async kill(): Promise<void> {
    for (const { child } of this.#background) child.kill();
    if (existsSync(this.#socket)) await this.run('npx gaudi-ucx node down');
  }
}

describe('commands of README.md', { timeout: 240_000 }, () => {
  const [, block] = README.match(/<!-- commands: .* -->\n```sh\n([\s\S]*?)```\n<!-- commands: end -->/)!;

  it('run as they are', async () => {
    const lines = block!.trimEnd().split('\n');
    const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-readme-'));
    const shell = new Shell(folder, await freePort());
    const printed: string[] = [];
    try {
      for (const line of lines) printed.push(await shell.run(line));
      await shell.ended();
    } finally {
      await shell.kill();
      rmSync(folder, { recursive: true });
    }
    expect(printed.map((text) => /\S/.test(text))).toEqual(lines.map(() => true));
    expect(printed.at(-1)).toMatch(/^node server \d+ has ended$/m);
  });

  it('are all of them', () => {
    const others = README.replace(block!, '').match(/^(?:\w+='[^']*' )*np[mx] .*$/gm);
    // The gate runs these two.
    expect(others).toEqual(['npm install && npm run demo', 'npm install && npm test']);
  });
});
