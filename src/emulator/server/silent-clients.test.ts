/** Clients of a node server that connect and send nothing, or leave at once: they have a deadline, and cannot fill its log. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { createTestLog, type TestLog } from '../../../test/fixtures/test-log.ts';
import { allocateScratch, connectUnix, PollEvent, pollNow, SocketType, type UnixSocket } from '../../sys/index.ts';
import { WARNINGS_MAX } from '../../ucs/debug/limited-log.ts';
import { type Clock, ManualClock, systemClock } from '../../ucs/sys/clock.ts';
import { NODE_PROTOCOL_VERSION } from './mailbox.ts';
import { encodeMessage } from './message.ts';
import { NodeServer } from './node-server.ts';

const HELLO_NS = 10e9;

describe('a client of a node server that sends nothing', () => {
  expectNoLeaks();
  let folder: string;
  let clock: ManualClock;
  let log: TestLog;
  let server: NodeServer;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-silent-'));
    clock = new ManualClock();
    log = createTestLog();
    // The loop of the server spins for a while of real time.
    const real: Clock = {
      nowNs: () => systemClock.nowNs(),
      setTimer: (delayNs, callback) => clock.setTimer(delayNs, callback),
    };
    server = new NodeServer({
      socketPath: join(folder, 'node.sock'),
      node: { cards: 1, dmaThreads: 0, clock: real, log: log.log },
    });
  });
  afterEach(() => {
    server.close();
    rmSync(folder, { recursive: true });
    log.expectQuiet();
  });

  async function silent(count: number): Promise<UnixSocket[]> {
    const sockets = Array.from({ length: count }, () => connectUnix(server.socketPath, SocketType.SEQPACKET));
    await vi.waitFor(() => expect(server.status().clients).toHaveLength(Math.min(count, 32)));
    return sockets;
  }

  function hasEnded({ fd }: UnixSocket): boolean {
    return (pollNow(fd, PollEvent.IN) & PollEvent.HUP) !== 0;
  }

  it('is disconnected after the time limit for the hello, and not before', async () => {
    log.allow(/no handshake within/);
    const [socket] = await silent(1);
    clock.advance(HELLO_NS - 1);
    expect(hasEnded(socket!)).toBe(false);
    clock.advance(1);
    expect([hasEnded(socket!), server.status().clients]).toEqual([true, []]);
    socket!.close();
  });

  it('as one of many evicted ones leaves a limited number of lines in the log', async () => {
    log.allow(/newer connections wait|left out/);
    const sockets = await silent(100);
    await vi.waitFor(() => expect(sockets.filter(hasEnded)).toHaveLength(68));
    expect(log.records.filter(({ message }) => /newer connections wait/.test(message))).toHaveLength(WARNINGS_MAX);
    for (const socket of sockets) socket.close();
  });

  it('and gives up before its hello is read leaves no line, unlike one that stays and gives a wrong proof', async () => {
    const proof = allocateScratch(4);
    const hello = encodeMessage({
      op: 'hello',
      id: 1,
      version: NODE_PROTOCOL_VERSION,
      address: proof.address,
      value: 1,
    });
    const [left] = await silent(1);
    expect(left!.sendmsg(hello)).toBeGreaterThan(0);
    left!.close();
    await vi.waitFor(() => expect(server.status().clients).toEqual([]));
    expect(log.records).toEqual([]);
    log.allow(/the peer is not process/);
    const [stays] = await silent(1);
    expect(stays!.sendmsg(hello)).toBeGreaterThan(0);
    await vi.waitFor(() => expect(hasEnded(stays!)).toBe(true));
    expect(log.records).toHaveLength(1);
    stays!.close();
    proof.free();
  });
});
