/**
 * A node server closes connections without a hello to make room; a client whose connection is closed reconnects, a limited number of times. A client waits
 * for a place among the connections that the server has not accepted.
 */

import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';
import {
  connectUnix,
  listenUnix,
  MESSAGE_BYTES_MAX,
  type PollSubscription,
  pollReadable,
  SocketType,
  type UnixListener,
  type UnixSocket,
} from '../../sys/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { connectToServer } from './connection.ts';
import { decodeMessage, encodeMessage } from './message.ts';

const CONNECTS_MAX = 8;
/** Connects and prints the identity of the node, or the error. A client blocks, so it runs in a separate process. */
const CLIENT = `
  import { connectEmulatedNode } from ${builtSpecifier(new URL('../index.ts', import.meta.url))};
  try {
    const node = connectEmulatedNode(process.argv[1]);
    console.log(JSON.stringify(node.identity));
    node.close();
  } catch (error) {
    console.log(JSON.stringify([error.code, error.message]));
  }
`;

describe('a client whose connection the node server closes', () => {
  expectNoLeaks();
  let folder: string;
  let path: string;
  let listener: UnixListener;
  let accepting: PollSubscription;
  /** Number of connections so far. */
  let connections: number;
  /** Number of connections that the server closes before it greets. */
  let hangUps: number;
  /** Whether it reads the hello before it closes. */
  let isRead: boolean;
  const open: { readonly socket: UnixSocket; readonly reading: PollSubscription }[] = [];

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-connection-'));
    path = join(folder, 'node.sock');
    listener = listenUnix(path, SocketType.SEQPACKET);
    accepting = pollReadable(listener.fd, accept);
    connections = 0;
  });
  afterEach(() => {
    accepting.close();
    listener.close();
    for (const { socket, reading } of open.splice(0)) {
      reading.close();
      socket.close();
    }
    rmSync(folder, { recursive: true });
  });

  function accept(): void {
    const socket = listener.accept();
    if (socket === undefined) return;
    connections += 1;
    const isHungUp = connections <= hangUps;
    if (isHungUp && !isRead) {
      socket.close();
      return;
    }
    const bytes = new Uint8Array(MESSAGE_BYTES_MAX);
    const reading = pollReadable(socket.fd, () => {
      const received = socket.recvmsg(bytes, []);
      if (received > 0 && !isHungUp) {
        const { id } = decodeMessage(bytes.subarray(0, received));
        socket.sendmsg(encodeMessage({ id, access: true, identity: 'the one' }));
        return;
      }
      reading.close();
      socket.close();
    });
    open.push({ socket, reading });
  }

  async function client(): Promise<unknown> {
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', CLIENT, path]);
    return JSON.parse(stdout);
  }

  it.each([
    ['before it has read the hello', false],
    ['after it has read the hello', true],
  ])('%s connects again', async (_, read) => {
    [hangUps, isRead] = [CONNECTS_MAX - 1, read];
    expect(await client()).toBe('the one');
    expect(connections).toBe(CONNECTS_MAX);
  });

  it('fails after a limited number of attempts', async () => {
    [hangUps, isRead] = [Number.POSITIVE_INFINITY, false];
    expect(await client()).toEqual(['ERR_NODE_UNREACHABLE', expect.stringMatching(/has ended/)]);
    expect(connections).toBe(CONNECTS_MAX);
  });
});

describe('a client of a node server with as many waiting connections as its socket takes', () => {
  expectNoLeaks();
  let folder: string;
  let path: string;
  let listener: UnixListener;
  const waiting: UnixSocket[] = [];

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-connection-'));
    path = join(folder, 'node.sock');
    listener = listenUnix(path, SocketType.SEQPACKET, 1);
    expect(() => {
      for (;;) waiting.push(connectUnix(path, SocketType.SEQPACKET));
    }).toThrow(/EAGAIN/);
  });
  afterEach(() => {
    vi.restoreAllMocks();
    for (const socket of waiting.splice(0)) socket.close();
    listener.close();
    rmSync(folder, { recursive: true });
  });

  /** Calls `then` at each reading of the clock, with its number: the client blocks this thread, and reads it between two attempts. */
  function atReadings(then: (reading: number) => number): void {
    let reading = 0;
    vi.spyOn(systemClock, 'nowNs').mockImplementation(() => then(reading++));
  }

  it('gets a place as soon as the server accepts others', () => {
    const accepted: UnixSocket[] = [];
    const bytes = new Uint8Array(MESSAGE_BYTES_MAX);
    atReadings((reading) => {
      if (reading < 3) return reading;
      for (let socket = listener.accept(); socket !== undefined; socket = listener.accept()) accepted.push(socket);
      for (const socket of accepted) {
        const received = socket.recvmsg(bytes, []);
        if (received <= 0) continue;
        const { id } = decodeMessage(bytes.subarray(0, received));
        socket.sendmsg(encodeMessage({ id, access: true, identity: 'the one' }));
      }
      return reading;
    });
    const connection = connectToServer(path);
    expect(connection.identity).toBe('the one');
    connection.close();
    for (const socket of accepted) socket.close();
  });

  it('is rejected, and not with "no server", if it gets none in time', () => {
    atReadings((reading) => reading * 4e9);
    expect(() => connectToServer(path)).toThrow(
      expect.objectContaining({
        code: 'ERR_NODE_REFUSED',
        message: expect.stringContaining('has not accepted this connection'),
      }),
    );
  });
});
