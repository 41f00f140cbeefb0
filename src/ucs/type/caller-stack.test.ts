import { describe, expect, it } from 'vitest';
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
