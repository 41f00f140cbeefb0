/** Counts the garbage of operations, in the compiled package: vitest rewrites modules, and V8 allocates in them what it does not here. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const BENCH = join(import.meta.dirname, '../../dist/bench/main.js');

it('an operation of 8 bytes leaves no garbage', () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--expose-gc', BENCH, 'garbage'], {
    encoding: 'utf8',
  });
  expect([status, stderr], stdout).toEqual([0, '']);
  expect(stdout.match(/^garbage of one /gm)).toHaveLength(11);
}, 60_000);
