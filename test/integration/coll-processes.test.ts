/** Eight ranks as processes on a node server: every collective operation against the oracle in one start, then one is killed in the middle of an operation. */

import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { COLLECTIVES } from '../../src/coll/choice/problem.ts';
import { serveForked } from '../../src/coll/index.ts';
import { built } from '../fixtures/built.ts';
import type { RankArgument } from '../fixtures/coll-rank-program.ts';
import { TestNodeServer } from '../fixtures/node-server.ts';

const PROGRAM = built(join(import.meta.dirname, '../fixtures/coll-rank-program.ts'));
const SIZE = 8;
const VICTIM = 5;

/** The messages of a rank that are not of the exchange, and how it ended. */
class Inbox {
  readonly #messages: unknown[] = [];
  #wake: () => void = () => {};

  constructor(child: ChildProcess) {
    child.on('message', (message: object) => {
      if ('kind' in message) this.#add(message);
    });
    child.on('exit', (code, signal) => this.#add({ ended: code ?? signal }));
  }

  /** The next one. */
  async next(): Promise<unknown> {
    while (this.#messages.length === 0) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return this.#messages.shift();
  }

  #add(message: unknown): void {
    this.#messages.push(message);
    this.#wake();
  }
}

describe('eight processes', { timeout: 120_000 }, () => {
  it('have the data of the oracle, name the one that is killed, and go on without it', async () => {
    const server = await TestNodeServer.start({ cards: SIZE });
    const children: ChildProcess[] = [];
    try {
      for (let rank = 0; rank < SIZE; rank++) {
        const argument: RankArgument = { rank, size: SIZE, victim: VICTIM };
        const env = {
          ...process.env,
          UCX_GAUDI_DRIVER: `emulator:${server.socketPath}`,
          UCX_ACC_DEVICES: `gaudi${rank}`,
        };
        children.push(
          fork(PROGRAM, [JSON.stringify(argument)], { env, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }),
        );
      }
      serveForked(children);
      const inboxes = children.map((child) => new Inbox(child));
      const checked = await Promise.all(inboxes.map((inbox) => inbox.next()));
      const operations = 2 * 2 * COLLECTIVES.length;
      expect(checked).toEqual(children.map(() => ({ kind: 'checked', operations, wrong: 0 })));
      expect(await inboxes[VICTIM]!.next()).toEqual({ ended: 'SIGKILL' });
      const survivors = inboxes.filter((_, rank) => rank !== VICTIM);
      for (const inbox of survivors) {
        expect(await inbox.next()).toEqual({ kind: 'died', code: 'ERR_COLL_RANK_FAILED', rank: VICTIM });
      }
      for (const inbox of survivors) expect(await inbox.next()).toEqual({ kind: 'survived', sum: SIZE - 1 });
      expect(server.errors).toBe('');
    } finally {
      for (const child of children) child.kill('SIGKILL');
      await server.stop();
    }
  });
});
