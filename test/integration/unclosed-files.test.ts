/** The files in /dev/shm of a program that ends by itself without closing its context. */

import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { SEGMENT_FOLDER } from '../../src/uct/base/key/segment.ts';
import { built } from '../fixtures/built.ts';

const PROGRAM = built(join(import.meta.dirname, '../fixtures/unclosed-program.ts'));

describe('a program that does not close its context', { timeout: 20_000 }, () => {
  it.each(['return', 'exit', 'throw'])('and ends by %s leaves neither segments nor sockets', (how) => {
    const { pid, stdout, status } = spawnSync(process.execPath, [PROGRAM, how], { encoding: 'utf8' });
    expect(status).toBe(how === 'throw' ? 1 : 0);
    expect(new Set(stdout.trimEnd().split('\n'))).toEqual(new Set(['segment', 'segment.ipc', 'segment.wake']));
    expect(readdirSync(SEGMENT_FOLDER).filter((name) => name.split('.')[2] === String(pid))).toEqual([]);
  });
});
