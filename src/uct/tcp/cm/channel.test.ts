/** Channels of two ends of one connection, plain and encrypted: bytes arrive once and in order, however they are read and sent. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import {
  AddressFamily,
  allocateScratch,
  Errno,
  type ScratchBlock,
  SocketOption,
  setSocketOption,
  tcpAccept,
  tcpClose,
  tcpConnect,
  tcpListen,
  tcpLocalAddress,
  tcpSocket,
} from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Security } from '../secure/security.ts';
import { type Channel, openChannel } from './channel.ts';
import { FRAME_BYTES_MAX } from './layout.ts';

const KEY = Buffer.from('a key of a test, long enough');
const LEVELS: readonly (readonly [string, Security | undefined])[] = [
  ['none', undefined],
  ['auth', { level: 'auth', key: KEY }],
  ['encrypt', { level: 'encrypt', key: KEY }],
];

expectNoLeaks();
let staging: ScratchBlock;
const channels: Channel[] = [];
beforeEach(() => {
  staging = allocateScratch(FRAME_BYTES_MAX);
});
afterEach(() => {
  for (const channel of channels.splice(0)) channel.close();
  staging.free();
});

/** Both ends of a connection with small buffers. */
function pair(security: Security | undefined): readonly [Channel, Channel] {
  const listening = tcpListen({ address: '127.0.0.1', port: 0 }, 1);
  setSocketOption(listening, SocketOption.RCVBUF, 4096);
  const client = tcpSocket(AddressFamily.INET);
  setSocketOption(client, SocketOption.SNDBUF, 4096);
  tcpConnect(client, tcpLocalAddress(listening));
  let server = tcpAccept(listening);
  while (server === -Errno.EAGAIN) server = tcpAccept(listening);
  tcpClose(listening);
  const ends = [
    openChannel(client, { staging, security }, 'connecting'),
    openChannel(server, { staging, security }, 'accepting'),
  ] as const;
  channels.push(...ends);
  return ends;
}

/** Ends the handshakes of both. */
function shakeHands(ends: readonly Channel[]): void {
  const open = new Set(ends);
  while (open.size > 0) {
    for (const channel of open) {
      const status = channel.handshake();
      expect([Status.OK, Status.INPROGRESS]).toContain(status);
      if (status === Status.OK) open.delete(channel);
    }
  }
}

describe.each(LEVELS)('a channel with security %s', (_level, security) => {
  it('transfers each byte once while its socket is blocked again and again', () => {
    const [from, to] = pair(security);
    shakeHands([from, to]);
    const sent = Uint8Array.from({ length: 200_000 }, (_, i) => (i * 7) % 251);
    const received: number[] = [];
    const target = new Uint8Array(1000);
    let blocked = 0;
    for (let at = 0; received.length < sent.byteLength; ) {
      const result = at < sent.byteLength ? from.write(sent.subarray(at, at + 10_000)) : -Errno.EAGAIN;
      if (result >= 0) at += result;
      else {
        expect(result).toBe(-Errno.EAGAIN);
        blocked += 1;
        const count = to.read(target);
        if (count !== -Errno.EAGAIN) {
          expect(count).toBeGreaterThan(0);
          received.push(...target.subarray(0, count));
        }
      }
    }
    expect(blocked).toBeGreaterThan(10);
    expect(Buffer.from(received).equals(sent)).toBe(true);
  });

  it('knows whether its peer has sent anything', () => {
    const [from, to] = pair(security);
    expect([from.hasReceived, to.hasReceived]).toEqual([false, false]);
    shakeHands([from, to]);
    from.write(Uint8Array.of(1));
    while (to.read(new Uint8Array(1)) !== 1);
    expect(to.hasReceived).toBe(true);
  });
});
