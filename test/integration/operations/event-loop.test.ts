/** The event descriptor of a worker outside of its thread, as docs/guide/event-loop.md says: what watches it, and what of Node.js does not. */

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { read } from 'node:fs';
import { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { describe, expect, it } from 'vitest';
import { Status } from '../../../src/index.ts';
import { PollEvent } from '../../../src/sys/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { ENGINES } from '../../fixtures/pair.ts';

const hasPython = spawnSync('python3', ['--version']).status === 0;

/** A loop of epoll in another process: for each line it waits until descriptor 3 is readable, and then writes the events. */
const EPOLL = `
import select, sys
loop = select.epoll()
loop.register(3, select.EPOLLIN)
for line in sys.stdin:
    print([events for _, events in loop.poll()], flush=True)
`;

const MESSAGES = 3;

describe.each(ENGINES)('the event descriptor over the engine %s', (engine) => {
  const fixture = useContexts();

  it.skipIf(!hasPython)('wakes a loop of epoll in a process that has inherited it (needs python3)', async () => {
    const [one, two] = await Promise.all([1, 2].map(() => fixture.open({ context: { engine } })));
    const { worker } = two!;
    const received: number[] = [];
    worker.setAmHandler(1, ({ header }) => received.push(header[0]!));
    const endpoint = one!.worker.endpoint(worker.address());
    const loop = spawn('python3', ['-c', EPOLL], { stdio: ['pipe', 'pipe', 'inherit', worker.eventFd] });
    const woken = createInterface({ input: loop.stdout! })[Symbol.asyncIterator]();
    try {
      for (let index = 0; index < MESSAGES; index++) {
        const sent = endpoint.amSend(1, new Uint8Array(0), { header: Uint8Array.of(index) });
        for (;;) {
          while (worker.progress() > 0);
          if (received.length > index) break;
          expect(worker.arm()).toBe(Status.OK);
          loop.stdin!.write('sleep\n');
          expect(await woken.next()).toEqual({ done: false, value: `[${PollEvent.IN}]` });
        }
        await sent;
      }
    } finally {
      loop.stdin!.end();
      await once(loop, 'exit');
    }
    expect(received).toEqual(Array.from({ length: MESSAGES }, (_, index) => index));
  });

  it('is not watched by Node.js', async () => {
    const { worker } = await fixture.open({ context: { engine } });
    worker.arm();
    const { eventFd } = worker;
    expect(() => new Socket({ fd: eventFd })).toThrow(expect.objectContaining({ code: 'ERR_INVALID_FD_TYPE' }));
    const error = await new Promise((resolve) => read(eventFd, Buffer.alloc(8), 0, 8, null, resolve));
    expect(error).toMatchObject({ code: 'EAGAIN' });
  });
});
