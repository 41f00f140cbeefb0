/** The size of the house stays within its limits, and each figure sees what it counts. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { grown, measure } from '../scripts/house.ts';
import { ROOT } from './fixtures/tools/built.ts';

it('the house does not grow', () => {
  expect(grown(measure(ROOT))).toEqual([]);
});

it('each figure sees what it counts', () => {
  const root = mkdtempSync(join(tmpdir(), 'house-'));
  for (const folder of ['src', 'src/a', 'docs']) mkdirSync(join(root, folder));
  const style = '| Functions | Folders | Why |\n| --- | --- | --- |\n| `five`, `nine` | `a` | They do. |\n';
  writeFileSync(join(root, 'docs/STYLE.md'), style);
  writeFileSync(join(root, 'docs/LAW.md'), '| Folder | Is |\n| --- | --- |\n| `a` | one |\n| `b/*` | two |\n');
  const big = `interface Port { open(): void }
export interface Used { open(): void }
interface Data { readonly open: number }
interface Base { open(): void }
interface More extends Base { close(): void }
class Three implements More { open(): void {} close(): void {} }
class Four implements More { open(): void {} close(): void {} }
class One implements Used { open(): void {} close(): void {} }
function four(this: One, a: number, b: number, c: number, d: number): void {}
const five = (a: number, b: number, c: number, d: number, e: number): void => {};
class Six { constructor(a: number, b: number, c: number, d: number, e: number, f: number) {} }
`;
  writeFileSync(join(root, 'src/a/big.ts'), big);
  const small = `import type { Used as Api } from './a/big.ts';
export class Used implements Api { open(): void {} }
`;
  writeFileSync(join(root, 'src/small.ts'), small);
  writeFileSync(join(root, 'src/big.test.ts'), 'not counted\n'.repeat(100));
  const house = measure(root);
  rmSync(root, { recursive: true });
  expect(house.figures).toEqual({
    'source files': 2,
    'lines of the largest file': 11,
    'members of the largest class': 2,
    'functions with more than four parameters': 2,
    'interfaces with methods and at most one implementer': 1,
    'rows of the law': 2,
  });
  const limits = { ...house.figures, 'source files': 1 };
  expect(grown(house, limits)).toEqual([
    'source files: 2, at most 1',
    'Six in a has more than four parameters: see docs/STYLE.md',
    'docs/STYLE.md lists nine, which has no such function',
  ]);
});
