import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { cutOwnFrames, ownFolders, startAtCaller } from './caller-stack.ts';

const FOLDERS = ownFolders('file:///p/a%20b/dist/lib/type-x.js');

describe('cutOwnFrames', () => {
  const own = 'invalidParam (file:///p/a%20b/dist/lib/type-x.js:1:2)';
  const mapped = 'invalidParam (/p/a b/src/ucs/type/error.ts:1:2)';
  const program = 'main (file:///q/program.js:3:4)';
  const cut = (frames: readonly string[], limit = 10): readonly string[] =>
    cutOwnFrames(['Error: x', ...frames].join('\n    at '), 'UcxError: x', limit, FOLDERS).split('\n    at ');

  it('leaves out the frames above that of the program, and those of Node.js among them', () => {
    const nodes = 'process.processTicksAndRejections (node:internal/process/task_queues:95:5)';
    const parts = ['async Promise.all (index 1)', 'new Promise (<anonymous>)', 'Array.map (<anonymous>)'];
    expect(cut([own, mapped, nodes, ...parts, program, own])).toEqual(['UcxError: x', program, own]);
    expect(cut([own, program, program, program], 2)).toEqual(['UcxError: x', program, program]);
  });

  it('keeps all frames of an error that no call of the program has made', () => {
    expect(cut([own, 'listOnTimeout (node:internal/timers:581:17)'])).toHaveLength(3);
    expect(cut([])).toEqual(['UcxError: x']);
  });
});

it('the package has its own frames only in the build', () => {
  expect(FOLDERS).toEqual(['file:///p/a%20b/dist/lib/', 'file:///p/a%20b/src/', '/p/a b/dist/lib/', '/p/a b/src/']);
  expect(ownFolders(import.meta.url)).toEqual([]);
  expect(ownFolders('file:///bundle/program.mjs')).toEqual([]);
  expect(ownFolders(undefined)).toEqual([]);
  const error = new Error('x');
  const { stack } = error;
  startAtCaller(error);
  expect(error.stack).toBe(stack);
});

describe('in the build of the package', () => {
  const root = mkdtempSync(join(tmpdir(), 'gaudi-ucx-stack-'));
  afterAll(() => rmSync(root, { recursive: true }));

  it('the stack of an error begins at the caller, and the limit of the program is kept', async () => {
    mkdirSync(join(root, 'dist/lib'), { recursive: true });
    const built = join(root, 'dist/lib/caller-stack.ts');
    copyFileSync(join(import.meta.dirname, 'caller-stack.ts'), built);
    const module = (await import(built)) as { startAtCaller: typeof startAtCaller };
    const limit = Error.stackTraceLimit;
    const error = new Error('x');
    module.startAtCaller(error);
    expect(Error.stackTraceLimit).toBe(limit);
    // Frames are printed when the stack is read.
    expect(Object.getOwnPropertyDescriptor(error, 'stack')!.get).toBeTypeOf('function');
    expect(error.stack!.split('\n').slice(0, 2)).toEqual(['Error: x', expect.stringContaining('caller-stack.test.ts')]);
  });
});
