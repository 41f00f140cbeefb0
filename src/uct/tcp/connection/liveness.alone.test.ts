/** The time without a sign of life of a peer: of its process by its heartbeats, of its host by acknowledgements. Alone, because it replaces calls of the kernel. */

import { beforeEach, describe, expect, it, vi } from 'vitest';
import { INTERVALS, Liveness } from './liveness.ts';

/** What the kernel says of every socket. */
const socket = vi.hoisted(() => ({ ackedMs: 0, unreadBytes: 0 }));
vi.mock('../../../sys/index.ts', async (original) => ({
  ...(await original<typeof import('../../../sys/index.ts')>()),
  tcpAckedMs: () => socket.ackedMs,
  tcpUnreadBytes: () => socket.unreadBytes,
}));

const FD = 3;
const TIMEOUT_MS = 3000;
beforeEach(() => Object.assign(socket, { ackedMs: 0, unreadBytes: 0 }));

const silence = (liveness: Liveness, nowMs: number): number => liveness.silenceMs(FD, nowMs, TIMEOUT_MS);

describe('a host that acknowledges nothing', () => {
  it('is silent from the first data that it has not acknowledged, not from later data', () => {
    const liveness = new Liveness();
    liveness.ask(FD, 10_000);
    socket.ackedMs = 1;
    liveness.ask(FD, 12_000);
    socket.ackedMs = TIMEOUT_MS + 1;
    expect(silence(liveness, 10_000 + TIMEOUT_MS)).toBe(0);
    expect(silence(liveness, 10_001 + TIMEOUT_MS)).toBe(TIMEOUT_MS);
  });

  it('is not silent while this process has not sent anything to it for long', () => {
    const liveness = new Liveness();
    liveness.ask(FD, 10_000);
    // This process has slept: its next data finds everything before acknowledged, long ago.
    liveness.ask(FD, 90_000);
    socket.ackedMs = 80_000;
    expect(silence(liveness, 90_001)).toBe(0);
    expect(silence(liveness, 90_001 + TIMEOUT_MS)).toBe(TIMEOUT_MS);
  });

  it('works as long as the last acknowledgement is within the time limit', () => {
    const liveness = new Liveness();
    liveness.ask(FD, 10_000);
    socket.ackedMs = TIMEOUT_MS;
    expect(silence(liveness, 90_000)).toBe(0);
  });
});

describe('a process', () => {
  it.each([
    [500, TIMEOUT_MS],
    [2000, 2000 * INTERVALS],
  ])('with heartbeats every %i ms is silent after %i ms without one', (heartbeatMs, limitMs) => {
    const liveness = new Liveness();
    liveness.heartbeatMs = heartbeatMs;
    liveness.look(1, 10_000);
    // The same number of signs is not a new one.
    liveness.look(1, 11_000);
    expect([silence(liveness, 10_000 + limitMs), silence(liveness, 10_001 + limitMs)]).toEqual([0, limitMs]);
    liveness.look(2, 10_001 + limitMs);
    expect(silence(liveness, 10_001 + 2 * limitMs)).toBe(0);
  });

  it('is not silent if its data was not read, or if it has sent no heartbeat', () => {
    const liveness = new Liveness();
    liveness.look(1, 10_000);
    expect(silence(liveness, 90_000)).toBe(0);
    liveness.heartbeatMs = 100;
    socket.unreadBytes = 1;
    expect(silence(liveness, 90_000)).toBe(0);
    socket.unreadBytes = 0;
    expect(silence(liveness, 90_000)).toBe(TIMEOUT_MS);
  });
});
