/** Connecting to a service that is not a listener of this library: its first bytes end the attempt, also if it waits after fewer bytes than a frame has. */

import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { useManagers } from '../../../../test/fixtures/transports/connection-managers.ts';
import { keyFile } from '../../../../test/fixtures/transports/key-files.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { tcpComponent } from '../md.ts';
import { CmFrameType, FrameReader, packFrame } from './layout.ts';

const AUTH = { TCP_SECURITY: 'auth', TCP_KEY_FILE: keyFile() };
const NONCE = new Uint8Array(16);

const fixture = useManagers(tcpComponent().openConnectionManager!);
const sockets: Socket[] = [];
const servers: Server[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await new Promise((resolve) => server.close(resolve));
});

/** A server that sends some bytes to each client, and waits. */
async function service(bytes: Uint8Array): Promise<{ address: string; port: number; clients: () => number }> {
  let clients = 0;
  const server = createServer((socket) => {
    clients += 1;
    sockets.push(socket);
    socket.on('error', () => undefined);
    socket.write(bytes);
  });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  return { address: '127.0.0.1', port, clients: () => clients };
}

describe('a service that is not a listener', () => {
  it.each([
    ['a line that is shorter than a frame', Buffer.from('220 mail\r\n'), /begins with "220 ": the peer does not use/],
    ['one byte', Buffer.from('R'), /begins with "R": the peer does not use/],
    ['bytes that are no text', Uint8Array.of(0, 1, 255), /begins with 0x0001ff: the peer does not use/],
    [
      'the magic number, and another version',
      Buffer.from('UXCM\x09'),
      /has protocol version 9, but this library uses 2/,
    ],
    ['the magic number of a listener with a key', Buffer.from('UCXS'), /UCX_TCP_SECURITY is none here/],
  ])('fails the attempt by %s, without waiting', async (_, bytes, reason) => {
    const to = await service(bytes);
    // The clock stands still: no time limit ends the attempt.
    const { answers } = fixture.connect(fixture.open({}, new ManualClock()), to);
    await fixture.until(() => answers.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.UNREACHABLE, error: { code: 'ERR_TCP_CM' } });
    expect(answers[0]!.error!.message).toMatch(reason);
    expect(to.clients()).toBe(1);
  });

  it('fails the attempt of a client with a shared key, too', async () => {
    const to = await service(Buffer.from('2'));
    const { answers } = fixture.connect(fixture.open(AUTH, new ManualClock()), to);
    await fixture.until(() => answers.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.REJECTED, error: { code: 'ERR_TCP_CM' } });
    expect(answers[0]!.error!.message).toMatch(/does not authenticate itself/);
  });

  it('is still waited for while its bytes can be the beginning of an answer', async () => {
    const clock = new ManualClock();
    const to = await service(packFrame(CmFrameType.HELLO, Status.OK, NONCE).subarray(0, 7));
    const { answers } = fixture.connect(fixture.open({}, clock), to);
    await fixture.until(() => to.clients() === 1);
    await fixture.idle();
    expect(answers).toEqual([]);
    clock.advance(20e9);
    await fixture.until(() => answers.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.TIMED_OUT });
  });
});

describe('a frame', () => {
  it('has its fault from the first false byte on', () => {
    const packed = packFrame(CmFrameType.HELLO, Status.OK, NONCE);
    for (let at = 0; at <= 4; at++) {
      const bytes = packed.slice();
      bytes[at] = 0x7f;
      const reader = new FrameReader();
      for (let end = 0; end <= at; end++) {
        expect([end, reader.fault]).toEqual([end, undefined]);
        reader.take(bytes.subarray(end, end + 1));
      }
      expect([at, reader.fault, reader.missing]).toEqual([at, expect.any(String), 0]);
    }
  });
});
