/** Sockets over scripted calls and against each other: signals, errors, options, partial calls, and what is left when a call fails. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { failure, useScript } from '../../../test/fixtures/processes/scripted-calls.ts';
import { script } from '../../../test/fixtures/processes/scripted-libc.ts';
import { Errno } from '../base/errno.ts';
import { mapAnonymous, viewAt } from '../base/mapped-memory.ts';
import { allocateScratch } from '../base/scratch.ts';
import { close, fcntl } from '../file/file.ts';
import { addressBytes, addressText, packSockaddr, unpackSockaddr } from './inet-address.ts';
import {
  getSocketOption,
  SocketOption,
  setKeepalive,
  sourceAddressTo,
  TcpPieces,
  tcpAccept,
  tcpAckedMs,
  tcpClose,
  tcpConnect,
  tcpIsEstablished,
  tcpListen,
  tcpLocalAddress,
  tcpRecv,
  tcpSend,
  tcpShutdown,
  tcpSocket,
} from './tcp-socket.ts';
import { connectUnix, listenUnix, MESSAGE_BYTES_MAX, SocketType, unixSocketPair } from './unix-socket.ts';

vi.mock('../base/libc.ts', async (original) => {
  const { scriptedLibc } = await import('../../../test/fixtures/processes/scripted-libc.ts');
  return scriptedLibc(await original());
});

useScript();
const LOOPBACK = { address: '127.0.0.1', port: 0 };
const O_NONBLOCK = 0o4000;
const F_GETFL = 3;

/** Two connected sockets: [client, server]. */
function pair(): [number, number] {
  const listener = tcpListen(LOOPBACK, 8);
  const client = tcpSocket(2);
  tcpConnect(client, tcpLocalAddress(listener));
  let server = tcpAccept(listener);
  while (server === -Errno.EAGAIN) server = tcpAccept(listener);
  tcpClose(listener);
  return [client, server];
}

describe('a TCP socket', () => {
  it('that connects is not yet connected while the kernel continues, also after a signal', () => {
    const fd = tcpSocket(2);
    script('connect', -Errno.EINPROGRESS, -Errno.EINTR, 0, -Errno.ENETUNREACH);
    const address = { address: '10.1.2.3', port: 7 };
    expect([1, 2, 3].map(() => tcpConnect(fd, address))).toEqual([false, false, true]);
    expect(() => tcpConnect(fd, address)).toThrow(failure(Errno.ENETUNREACH));
    tcpClose(fd);
  });

  it('has the options that its listener asks for', () => {
    const [reused, own] = [tcpListen(LOOPBACK, 4), tcpListen(LOOPBACK, 4, false)];
    expect([reused, own].map((fd) => getSocketOption(fd, SocketOption.REUSEADDR))).toEqual([1, 0]);
    const [all, one] = ['::', '::1'].map((address) => tcpListen({ address, port: 0 }, 4));
    expect([all!, one!].map((fd) => getSocketOption(fd, SocketOption.V6ONLY))).toEqual([0, 1]);
    for (const fd of [reused, own, all!, one!]) tcpClose(fd);
  });

  it('that cannot be bound or listen leaves nothing', () => {
    script('bind', -Errno.EADDRINUSE);
    expect(() => tcpListen(LOOPBACK, 4)).toThrow(failure(Errno.EADDRINUSE));
    script('listen', -Errno.EADDRINUSE);
    expect(() => tcpListen(LOOPBACK, 4)).toThrow(failure(Errno.EADDRINUSE));
    script('connect', -Errno.ENETUNREACH);
    expect(sourceAddressTo('192.0.2.1')).toBeUndefined();
  });

  it('that is accepted does not block; a failure has its errno, and a signal is none', () => {
    const listener = tcpListen(LOOPBACK, 8);
    script('accept4', -Errno.EINTR, -Errno.EMFILE, -Errno.ECONNABORTED);
    expect([tcpAccept(listener), tcpAccept(listener)]).toEqual([-Errno.EMFILE, -Errno.ECONNABORTED]);
    tcpClose(listener);
    const [client, server] = pair();
    expect(fcntl(server, F_GETFL, 0) & O_NONBLOCK).toBe(O_NONBLOCK);
    tcpClose(client);
    tcpClose(server);
  });

  it('has keepalive with its times and number', () => {
    const fd = tcpSocket(2);
    setKeepalive(fd, 11, 12, 13);
    const options = [
      [1, 9],
      [6, 4],
      [6, 5],
      [6, 6],
    ] as const;
    expect(options.map((option) => getSocketOption(fd, option))).toEqual([1, 11, 12, 13]);
    tcpClose(fd);
  });

  it('waits for an acknowledgement only while data is without one', () => {
    const fd = tcpSocket(2);
    const answer =
      (unacked: number, ackedMs: number, state: number) =>
      (...args: number[]): number => {
        const info = new DataView(viewAt(args[3]!, 104));
        info.setUint8(0, state);
        info.setUint32(24, unacked, true);
        info.setUint32(56, ackedMs, true);
        return 0;
      };
    script('getsockopt', answer(0, 77, 1), answer(2, 78, 1), answer(0, 0, 1), answer(0, 0, 8));
    expect([tcpAckedMs(fd), tcpAckedMs(fd)]).toEqual([0, 78]);
    expect([tcpIsEstablished(fd), tcpIsEstablished(fd)]).toEqual([true, false]);
    tcpClose(fd);
  });

  it('continues after signals, with other errors as they are', () => {
    const [client, server] = pair();
    using memory = mapAnonymous(4096);
    const pieces = new TcpPieces();
    pieces.add(memory.address, 3);
    for (const name of ['send', 'sendmsg', 'recv', 'recvmsg'] as const) script(name, -Errno.EINTR, -Errno.ECONNRESET);
    expect([
      tcpSend(client, memory.address, 3),
      pieces.send(client),
      tcpRecv(server, memory.address, 3),
      pieces.receive(server),
    ]).toEqual(Array(4).fill(-Errno.ECONNRESET));
    pieces.free();
    tcpShutdown(client);
    tcpClose(client);
    tcpClose(server);
  });

  it('receives into as many pieces as there are now, whatever was sent before', () => {
    const [client, server] = pair();
    using memory = mapAnonymous(4096);
    memory.u8.set([1, 2, 3, 4, 5, 6], 0);
    const [sent, received] = [new TcpPieces(), new TcpPieces()];
    for (const at of [0, 2, 4]) sent.add(memory.address + at, 2);
    expect(sent.send(client)).toBe(6);
    received.add(memory.address + 100, 2);
    let count = received.receive(server);
    while (count === -Errno.EAGAIN) count = received.receive(server);
    expect([count, ...memory.u8.subarray(100, 104)]).toEqual([2, 1, 2, 0, 0]);
    received.add(memory.address + 102, 1);
    received.add(memory.address + 110, 9);
    received.clear();
    received.add(memory.address + 200, 1);
    received.add(memory.address + 300, 9);
    expect(received.receive(server)).toBe(4);
    expect([memory.u8[200], ...memory.u8.subarray(300, 304), memory.u8[102]]).toEqual([3, 4, 5, 6, 0, 0]);
    sent.free();
    received.free();
    tcpClose(client);
    tcpClose(server);
  });
});

describe('the address of a socket', () => {
  it('has its zone in the order of the machine, and nothing of an earlier address', () => {
    const block = allocateScratch(64);
    block.u8.fill(0xff);
    expect(packSockaddr({ address: 'fe80::1%3', port: 0x1234 }, block)).toBe(28);
    expect([...block.u8.subarray(0, 8)]).toEqual([10, 0, 0x12, 0x34, 0, 0, 0, 0]);
    expect([...block.u8.subarray(24, 28)]).toEqual([3, 0, 0, 0]);
    packSockaddr({ address: 'fe80::1', port: 1 }, block);
    expect(block.view.getUint32(24, true)).toBe(0);
    expect(unpackSockaddr(block)).toEqual({ address: 'fe80::1', port: 1 });
    expect(() => packSockaddr({ address: 'fe80::1%no-such', port: 1 }, block)).toThrow(/zone/);
    expect(() => packSockaddr({ address: '1.2.3.4', port: 65_536 }, block)).toThrow(/port/);
    block.free();
  });

  it('is of IPv4 only behind the prefix ::ffff:0:0/96', () => {
    const block = allocateScratch(64);
    const unpacked = (address: string) => {
      packSockaddr({ address, port: 9 }, block);
      return unpackSockaddr(block)?.address;
    };
    expect(unpacked('::ffff:1.2.3.4')).toBe('1.2.3.4');
    for (const address of ['2001:db8::ffff:102:304', '::1:0:ffff:102:304', '::102:304']) {
      expect(addressBytes(unpacked(address)!)).toEqual(addressBytes(address));
    }
    block.view.setUint16(0, 1, true);
    expect(unpackSockaddr(block)).toBeUndefined();
    block.free();
    expect([addressText(Uint8Array.of(1, 2, 3, 4)), addressText(new Uint8Array(5))]).toEqual(['1.2.3.4', undefined]);
  });
});

describe('a Unix socket', () => {
  it('appends the descriptors that it receives, and refuses a message that has lost some', () => {
    const [left, right] = unixSocketPair(SocketType.SEQPACKET);
    left.sendmsg(Uint8Array.of(1), [left.fd]);
    left.sendmsg(Uint8Array.of(2), [right.fd, left.fd]);
    const fds = [-7];
    expect([right.recvmsg(new Uint8Array(4), fds), right.recvmsg(new Uint8Array(4), fds)]).toEqual([1, 1]);
    expect([fds.length, fds[0]]).toEqual([4, -7]);
    for (const fd of fds.slice(1)) close(fd);
    // MSG_CTRUNC, which the kernel sets where the process may not have more descriptors.
    script('recvmsg', (_fd, address) => {
      const message = new DataView(viewAt(address!, 56));
      message.setBigUint64(40, 0n, true);
      message.setInt32(48, 8, true);
      return 3;
    });
    expect(right.recvmsg(new Uint8Array(4), fds)).toBe(-Errno.EMSGSIZE);
    left.close();
    right.close();
  });

  it('names the user and the group of its peer', () => {
    const [left, right] = unixSocketPair(SocketType.STREAM);
    script('getsockopt', (...args) => {
      new Uint32Array(viewAt(args[3]!, 12)).set([501, 502, 0xffff_fff0]);
      return 0;
    });
    expect(left.peerCredentials()).toEqual({ pid: 501, uid: 502, gid: 0xffff_fff0 });
    left.close();
    right.close();
  });

  it('is sent to its peer, also when the block had an address before', () => {
    const folder = mkdtempSync(join(tmpdir(), 'sys-'));
    const path = join(folder, 's');
    const [left, right] = unixSocketPair(SocketType.SEQPACKET);
    const longer = listenUnix(`${path}longer`, SocketType.SEQPACKET);
    const listener = listenUnix(path, SocketType.SEQPACKET);
    const client = connectUnix(path, SocketType.SEQPACKET);
    expect(left.sendmsg(Buffer.from('hello'))).toBe(5);
    const target = Buffer.alloc(8);
    expect([right.recvmsg(target, []), target.toString('latin1', 0, 5)]).toEqual([5, 'hello']);
    for (const each of [left, right, client, listener, longer]) each.close();
    rmSync(folder, { recursive: true });
  });

  it('of an abstract name has exactly its bytes, and a path ends with zero', () => {
    const seen: unknown[] = [];
    const note = (_fd: number, address: number, length: number): number => {
      seen.push(Buffer.from(viewAt(address, 128)).toString('latin1', 2, length));
      return -Errno.EACCES;
    };
    script('bind', note, note, note);
    // What is in the block before must not lengthen the path.
    const [left, right] = unixSocketPair(SocketType.STREAM);
    left.sendmsg(new Uint8Array(MESSAGE_BYTES_MAX).fill(65));
    for (const path of ['/long/path', '/x', '\0abc']) {
      expect(() => listenUnix(path, SocketType.STREAM)).toThrow(failure(Errno.EACCES));
    }
    expect(seen).toEqual(['/long/path\0', '/x\0', '\0abc']);
    left.close();
    right.close();
  });

  it('listens with the backlog of the caller; a client that has given up is none', () => {
    const seen: unknown[] = [];
    script('listen', (_fd, backlog) => seen.push(backlog) - 1);
    const listener = listenUnix(`\0sys-calls-${process.pid}`, SocketType.STREAM, 9);
    expect(seen).toEqual([9]);
    script('accept4', -Errno.ECONNABORTED, -Errno.EINTR, -Errno.EAGAIN, -Errno.EMFILE);
    expect([listener.accept(), listener.accept()]).toEqual([undefined, undefined]);
    expect(() => listener.accept()).toThrow(failure(Errno.EMFILE));
    listener.close();
  });

  it('continues after signals, and has the errno of other failures', () => {
    const [left, right] = unixSocketPair(SocketType.STREAM);
    script('sendmsg', -Errno.EINTR, -Errno.ETOOMANYREFS);
    script('recvmsg', -Errno.EINTR, -Errno.ECONNRESET);
    expect([left.sendmsg(Uint8Array.of(1)), right.recvmsg(new Uint8Array(1), [])]).toEqual([
      -Errno.ETOOMANYREFS,
      -Errno.ECONNRESET,
    ]);
    script('connect', -Errno.EINTR, -Errno.EAGAIN);
    expect(() => connectUnix('/x', SocketType.STREAM)).toThrow(failure(Errno.EAGAIN));
    left.close();
    right.close();
  });
});
