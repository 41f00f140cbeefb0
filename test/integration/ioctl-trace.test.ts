/** Traces of ioctls: recorded by a node server and by run, and compared by the command line. */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { connectEmulatedNode, NodeServer } from '../../src/emulator/index.ts';
import { ROOT } from '../fixtures/built.ts';
import { CompilerFolder, compilerSkipReason } from '../fixtures/c-library.ts';
import { MAIN } from '../fixtures/command-line.ts';

const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-trace-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function command(...args: readonly string[]): readonly [number | null, string, string] {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/UCX_|^VITEST|^NODE_ENV$/.test(name)));
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
    encoding: 'utf8',
    env,
    timeout: 60_000,
  });
  return [status, stdout, stderr];
}

/** Records a client that opens the cards which its script names. */
function record(name: string, script: string): string {
  const path = join(folder, name);
  const socket = join(folder, `${name}.sock`);
  expect(command('node', 'up', '--cards', '1', '--socket', socket, '--trace', path)[0]).toBe(0);
  try {
    expect(command(...script.split(' '), '--socket', socket)[0]).toBe(0);
  } finally {
    expect(command('node', 'down', '--socket', socket)[0]).toBe(0);
  }
  return path;
}

describe('traces', () => {
  it('of a server are refused where they cannot be written', () => {
    expect(() => new NodeServer({ socketPath: join(folder, 'x.sock'), trace: join(folder, 'no', 'x') })).toThrow(
      /ENOENT/,
    );
    expect(command('node', 'up', '--socket', join(folder, 'y.sock'), '--trace', '-')).toEqual([
      2,
      '',
      expect.stringContaining('--foreground'),
    ]);
    expect(typeof connectEmulatedNode).toBe('function');
    expect(record.length).toBe(2);
  });
});

const reason = process.getuid!() !== 0 ? 'not root' : existsSync('/dev/fuse') ? compilerSkipReason() : 'no /dev/fuse';
if (reason !== undefined) console.log(`traces of device nodes skipped: ${reason}`);

describe.skipIf(reason !== undefined)(`traces of device nodes${reason === undefined ? '' : ` (${reason})`}`, () => {
  it('of two runs of a C program are equal; those of another differ', () => {
    using compiler = new CompilerFolder();
    const source = readFileSync(join(ROOT, 'test/fixtures/device-nodes/copy.c'), 'utf8');
    const copy = compiler.program('copy', source);
    const [a, b, c] = ['a', 'b', 'c'].map((name) => join(folder, name)) as [string, string, string];
    for (const path of [a, b])
      expect(command('run', '--trace', path, '--', copy, '0000:19:00.0')).toEqual([0, 'equal\n', '']);
    expect(readFileSync(a, 'utf8')).toContain('"op":"ALLOC"');
    expect(command('trace', 'diff', a, b)).toEqual([0, '', '']);
    expect(command('run', '--trace', c, '--', 'sh', '-c', `${copy} 0000:19:00.0 && ${copy} 0000:19:00.0`)[0]).toBe(0);
    expect(command('trace', 'diff', a, c)).toEqual([
      1,
      expect.stringMatching(/^call \d+ differs\n< nothing\n> process 2 /),
      '',
    ]);
  });
});
