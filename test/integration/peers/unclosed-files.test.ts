/** The files in /dev/shm of a program that ends without closing its context: normally, or by a signal that it does not handle. */

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { scavenge } from '../../../src/uct/base/key/segment.ts';
import { SEGMENT_FOLDER } from '../../../src/uct/base/key/segment-name.ts';
import { built } from '../../fixtures/tools/built.ts';

const PROGRAM = built(join(import.meta.dirname, '../../fixtures/programs/unclosed-program.ts'));

/** By UCX_POSIX_USE_PROC_LINK: the kinds of files of such a program while it runs. */
const FILES = {
  y: ['segment.ipc'],
  n: ['segment', 'segment.ipc', 'segment.wake'],
};
const LINKS = ['y', 'n'] as const;

function environment(link: 'y' | 'n'): NodeJS.ProcessEnv {
  return { ...process.env, UCX_POSIX_USE_PROC_LINK: link };
}

function filesOf(pid: number, folder: string = SEGMENT_FOLDER): string[] {
  return readdirSync(folder).filter((name) => name.split('.')[2] === String(pid));
}

describe.each(LINKS)(
  'a program that does not close its context, with UCX_POSIX_USE_PROC_LINK=%s',
  { timeout: 20_000 },
  (link) => {
    it.each(['return', 'exit', 'throw'])('and ends by %s leaves neither segments nor sockets', (how) => {
      const { pid, stdout, status } = spawnSync(process.execPath, [PROGRAM, how], {
        encoding: 'utf8',
        env: environment(link),
      });
      expect(status).toBe(how === 'throw' ? 1 : 0);
      expect(new Set(stdout.trimEnd().split('\n'))).toEqual(new Set(FILES[link]));
      expect(filesOf(pid)).toEqual([]);
    });

    it.each(['SIGINT', 'SIGTERM', 'SIGKILL'] as const)(
      'and ends by %s leaves no memory without a path',
      async (signal) => {
        // Other programs remove what ended ones have left in the common folder, at any time.
        const folder = mkdtempSync(`${SEGMENT_FOLDER}/gaudi-ucx-unclosed-`);
        const child = spawn(process.execPath, [PROGRAM, 'wait'], {
          env: { ...environment(link), UCX_POSIX_DIR: folder },
          stdio: ['ignore', 'pipe', 'inherit'],
        });
        await once(child.stdout, 'data');
        child.kill(signal);
        expect(await once(child, 'close')).toEqual([null, signal]);
        const left = filesOf(child.pid!, folder);
        if (link === 'y') expect(left).toEqual([]);
        else expect(left.length).toBeGreaterThan(2);
        expect(scavenge(folder)).toBeGreaterThanOrEqual(left.length);
        expect(readdirSync(folder)).toEqual([]);
        // The socket of gaudi_ipc is an empty file in the common folder.
        expect(filesOf(child.pid!).filter((name) => !name.endsWith('.ipc'))).toEqual([]);
        scavenge();
        expect(filesOf(child.pid!)).toEqual([]);
        rmSync(folder, { recursive: true });
      },
    );
  },
);
