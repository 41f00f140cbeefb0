/**
 * Ranks as processes on a node server, over all transports (on gaudi3 too), tcp and libucp: every collective operation against the oracle in one start; one
 * rank is stopped in the middle of an operation, continues, and is then killed in the middle of another.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { COLLECTIVES } from '../../../src/coll/choice/problem.ts';
import { serveForked } from '../../../src/coll/index.ts';
import type { AsicName } from '../../../src/uapi/index.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import type { RankArgument } from '../../fixtures/programs/coll-rank-program.ts';
import { requires } from '../../fixtures/requires.ts';
import { built } from '../../fixtures/tools/built.ts';

const PROGRAM = built(join(import.meta.dirname, '../../fixtures/programs/coll-rank-program.ts'));
const VICTIM = 2;
/** Times that the others say that they wait for a stopped rank. */
const LOOKS = 50;

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

/** Waits until a process is stopped. */
async function stopped({ pid }: ChildProcess): Promise<void> {
  // The state is behind the name, which is in parentheses.
  const state = (): string => readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]![0]!;
  while (state() !== 'T') await new Promise(setImmediate);
}

interface Kind {
  readonly name: string;
  readonly size: number;
  readonly env: Readonly<Record<string, string>>;
  readonly end: RankArgument['end'];
  readonly asic?: AsicName;
  readonly skipReason?: string | undefined;
}

const KINDS: readonly Kind[] = [
  { name: 'eight processes, over all transports', size: 8, env: {}, end: 'SIGSTOP' },
  { name: 'three processes on gaudi3, over all transports', size: 3, env: {}, end: 'SIGSTOP', asic: 'gaudi3' },
  { name: 'three processes, over tcp', size: 3, env: { UCX_TLS: 'tcp,self,gaudi_cpy' }, end: 'SIGKILL' },
  {
    name: 'three processes, over libucp',
    size: 3,
    env: { UCX_ENGINE: 'libucx', UCX_KEEPALIVE_INTERVAL: '1s' },
    end: 'SIGSTOP',
    ...installedLibucp(),
  },
];

describe.each(KINDS)('$name', { timeout: 120_000 }, ({ size, env, end, asic, skipReason }) => {
  it('have the data of the oracle, wait for one that is stopped, name it when it is killed, and go on without it', async () => {
    requires(skipReason === undefined, 'libucp');
    const server = await TestNodeServer.start({ cards: size, ...(asic === undefined ? {} : { asic }) });
    const children: ChildProcess[] = [];
    try {
      for (let rank = 0; rank < size; rank++) {
        const argument: RankArgument = { rank, size, victim: VICTIM, end };
        const own = { UCX_GAUDI_DRIVER: `emulator:${server.socketPath}`, UCX_ACC_DEVICES: `gaudi${rank}` };
        const options = { env: { ...process.env, ...env, ...own } };
        children.push(
          fork(PROGRAM, [JSON.stringify(argument)], { ...options, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }),
        );
      }
      serveForked(children);
      const inboxes = children.map((child) => new Inbox(child));
      const survivors = inboxes.filter((_, rank) => rank !== VICTIM);
      const victim = children[VICTIM]!;
      /** Every rank says this next. */
      const expectAll = async (ranks: readonly Inbox[], message: object): Promise<void> =>
        expect(await Promise.all(ranks.map((inbox) => inbox.next()))).toEqual(ranks.map(() => message));

      await expectAll(inboxes, { kind: 'checked', operations: 2 * 2 * COLLECTIVES.length, wrong: 0 });
      await expectAll(survivors, { kind: 'begun' });
      await stopped(victim);
      for (let look = 0; look < LOOKS; look++) {
        for (const child of children) if (child !== victim) child.send('state');
        await expectAll(survivors, { kind: 'state', isPending: true });
      }
      victim.kill('SIGCONT');
      await expectAll(inboxes, { kind: 'resumed', isRight: true });
      if (end === 'SIGSTOP') {
        await stopped(victim);
        victim.kill('SIGKILL');
      }
      expect(await inboxes[VICTIM]!.next()).toEqual({ ended: 'SIGKILL' });
      await expectAll(survivors, { kind: 'died', code: 'ERR_COLL_RANK_FAILED', rank: VICTIM });
      await expectAll(survivors, { kind: 'survived', sum: size - 1 });
      expect(server.errors).toBe('');
    } finally {
      for (const child of children) child.kill('SIGKILL');
      await server.stop();
    }
  });
});
