/** The event descriptor of a worker, as a loop of poll or epoll uses it: readable after an event, until the worker is armed again. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { Status, type Worker } from '../../../src/index.ts';
import { PollEvent, pollNow } from '../../../src/sys/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const MESSAGES = 20;
const CONNECTIONS = [
  ['native', 'self,posix'],
  ['native', 'self,tcp'],
  ['libucx', 'self,posix'],
  ['libucx', 'self,tcp'],
] as const;

const isReady = ({ eventFd }: Worker): boolean => pollNow(eventFd, PollEvent.IN) !== 0;

describe.each(CONNECTIONS)('the event descriptor over the engine %s and %s', (engine, tls) => {
  const fixture = useContexts();

  it.skipIf(engine === 'libucx' && installedLibucp().libucp === undefined)(
    'is unreadable once it is armed',
    async () => {
      const [one, two] = await Promise.all(
        [1, 2].map(() => fixture.open({ context: { engine, env: { UCX_TLS: tls } } })),
      );
      const { worker } = two!;
      const received: number[] = [];
      worker.setAmHandler(1, (message) => received.push(message.header[0]!));
      const endpoint = one!.worker.endpoint(worker.address());
      for (let index = 0; index < MESSAGES; index++) {
        // A turn of the loop of a program: works, arms, sleeps until the descriptor is readable.
        while (worker.progress() + one!.worker.progress() > 0);
        expect(worker.arm()).toBe(Status.OK);
        expect(isReady(worker)).toBe(false);
        const sent = endpoint.amSend(1, new Uint8Array(0), { header: Uint8Array.of(index) });
        while (received.length === index) {
          while (!isReady(worker)) await nextTurn();
          while (worker.progress() > 0);
          // There may be events without a message.
          worker.arm();
        }
        await sent;
      }
      expect(received).toEqual(Array.from({ length: MESSAGES }, (_, index) => index));
    },
  );
});
