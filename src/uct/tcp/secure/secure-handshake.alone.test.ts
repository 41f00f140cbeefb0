/** The key exchange over a socket whose other end the test writes and reads, and over scripted calls. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { useScript } from '../../../../test/fixtures/processes/scripted-calls.ts';
import { script } from '../../../../test/fixtures/processes/scripted-libc.ts';
import {
  AddressFamily,
  allocateScratch,
  Errno,
  type ScratchBlock,
  tcpAccept,
  tcpClose,
  tcpConnect,
  tcpListen,
  tcpLocalAddress,
  tcpRecv,
  tcpSend,
  tcpSocket,
} from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { HELLO_BYTES, KeyExchange, PROOF_BYTES, type Role, SecureHandshake } from './key-exchange.ts';
import type { Security } from './security.ts';
import { Session } from './session.ts';

const SECURITY: Security = { level: 'auth', key: Buffer.from('correct horse battery staple') };
const OTHER: Security = { level: 'auth', key: Buffer.from('correct horse battery stapler') };
const MEMORY_BYTES = 65_536;

vi.mock('../../../sys/base/libc.ts', async (original) => {
  const { scriptedLibc } = await import('../../../../test/fixtures/processes/scripted-libc.ts');
  return scriptedLibc(await original());
});

useScript();
let memory: ScratchBlock;
let fd: number;
let other: number;
const handshakes: SecureHandshake[] = [];
beforeEach(() => {
  memory = allocateScratch(MEMORY_BYTES);
  const listening = tcpListen({ address: '127.0.0.1', port: 0 }, 1);
  fd = tcpSocket(AddressFamily.INET);
  tcpConnect(fd, tcpLocalAddress(listening));
  other = tcpAccept(listening);
  while (other === -Errno.EAGAIN) other = tcpAccept(listening);
  tcpClose(listening);
});
afterEach(() => {
  for (const handshake of handshakes.splice(0)) handshake.close();
  tcpClose(fd);
  if (other >= 0) tcpClose(other);
  memory.free();
});

function handshakeAs(role: Role): SecureHandshake {
  const handshake = new SecureHandshake(fd, SECURITY, role);
  handshakes.push(handshake);
  return handshake;
}

function write(bytes: Uint8Array): void {
  memory.u8.set(bytes);
  expect(tcpSend(other, memory.address, bytes.byteLength)).toBe(bytes.byteLength);
}

/** The next bytes at the other end. */
function read(byteLength: number): Buffer {
  const bytes = Buffer.alloc(byteLength);
  for (let at = 0; at < byteLength; ) {
    const received = tcpRecv(other, memory.address, Math.min(byteLength - at, MEMORY_BYTES));
    if (received === -Errno.EAGAIN) continue;
    expect(received).toBeGreaterThan(0);
    bytes.set(memory.u8.subarray(0, received), at);
    at += received;
  }
  return bytes;
}

/** Continues the handshake while it waits for bytes that are on their way. */
function advanced(handshake: SecureHandshake): Session | Status {
  let result = handshake.advance();
  while (result === Status.INPROGRESS) result = handshake.advance();
  return result;
}

describe('a key exchange over a socket', () => {
  it('ends only when its proof was sent', () => {
    const handshake = handshakeAs('connecting');
    expect(handshake.advance()).toBe(Status.INPROGRESS);
    const exchange = new KeyExchange(SECURITY, 'accepting');
    const proof = exchange.receiveHello(read(HELLO_BYTES));
    write(Buffer.concat([exchange.hello, proof as Uint8Array]));
    script('send', -Errno.EAGAIN, -Errno.EAGAIN);
    // Until the proof of the peer has arrived, and afterwards.
    while (!handshake.hasOutput) expect(handshake.advance()).toBe(Status.INPROGRESS);
    expect(handshake.advance()).toBe(Status.INPROGRESS);
    const session = advanced(handshake);
    expect(session).toBeInstanceOf(Session);
    expect(handshake.hasOutput).toBe(false);
    expect(exchange.verify(read(PROOF_BYTES))).toBeInstanceOf(Session);
  });

  it('with a peer that has another key fails, and the peer has violated the protocol', () => {
    const handshake = handshakeAs('accepting');
    handshake.advance();
    const exchange = new KeyExchange(OTHER, 'connecting');
    const proof = exchange.receiveHello(read(HELLO_BYTES));
    write(Buffer.concat([exchange.hello, proof as Uint8Array]));
    expect(advanced(handshake)).toBe(Status.REJECTED);
    expect(handshake.isViolation).toBe(true);
    expect(handshake.reason).toMatch(/it does not have the key/);
  });

  it.each([
    ['connecting', Status.REJECTED],
    ['accepting', Status.CONNECTION_RESET],
  ] as const)('with a peer that disconnects: the %s end has its own status, and sees no violation', (role, status) => {
    const handshake = handshakeAs(role);
    handshake.advance();
    tcpClose(other);
    other = -1;
    expect(advanced(handshake)).toBe(status);
    expect(handshake.isViolation).toBe(false);
    expect(handshake.reason).toMatch(/closed the connection instead of authenticating itself/);
  });
});
