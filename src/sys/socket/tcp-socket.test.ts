/** TCP sockets against each other on the loopback device, and against node:net. */

import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { Errno } from '../base/errno.ts';
import { mapAnonymous } from '../base/mapped-memory.ts';
import { EventSet, ReadyFor } from '../event/event-set.ts';
import { pollReadable } from '../event/poll.ts';
import { AddressFamily, addressBytes, addressText, familyOf, printAddress } from './inet-address.ts';
import {
  getSocketOption,
  SocketOption,
  setSocketOption,
  sourceAddressTo,
  TcpPieces,
  tcpAccept,
  tcpClose,
  tcpConnect,
  tcpError,
  tcpListen,
  tcpLocalAddress,
  tcpRecv,
  tcpRemoteAddress,
  tcpSend,
  tcpShutdown,
  tcpSocket,
  tcpUnreadBytes,
} from './tcp-socket.ts';

/** Two connected sockets: [client, server]. */
function pairOn(address: string): [number, number] {
  const listener = tcpListen({ address, port: 0 }, 8);
  const client = tcpSocket(familyOf(address)!);
  tcpConnect(client, tcpLocalAddress(listener));
  let server = tcpAccept(listener);
  while (server === -Errno.EAGAIN) server = tcpAccept(listener);
  tcpClose(listener);
  return [client, server];
}

function receiveAll(fd: number, address: number, byteLength: number): void {
  for (let done = 0; done < byteLength; ) {
    const received = tcpRecv(fd, address + done, byteLength - done);
    if (received === -Errno.EAGAIN) continue;
    expect(received).toBeGreaterThan(0);
    done += received;
  }
}

describe.each(['127.0.0.1', '::1'])('a connection over %s', (address) => {
  it('transfers bytes, also in pieces, and reports its ends', () => {
    const [client, server] = pairOn(address);
    using memory = mapAnonymous(8192);
    const pieces = new TcpPieces();
    try {
      expect(tcpRemoteAddress(client)).toEqual(tcpLocalAddress(server));
      expect(tcpRemoteAddress(server)).toEqual(tcpLocalAddress(client));
      expect(tcpLocalAddress(server).address).toBe(address);
      for (let i = 0; i < 4096; i++) memory.u8[i] = i * 7;
      expect(tcpSend(client, memory.address, 100)).toBe(100);
      pieces.clear();
      pieces.add(memory.address + 100, 300);
      pieces.add(memory.address + 400, 3696);
      expect(pieces.send(client)).toBe(3996);
      while (tcpUnreadBytes(server) < 4096);
      pieces.clear();
      pieces.add(memory.address + 4096 + 50, 50);
      pieces.add(memory.address + 4096, 50);
      expect(pieces.receive(server)).toBe(100);
      expect(memory.u8.subarray(4096 + 50, 4096 + 100)).toEqual(memory.u8.subarray(0, 50));
      expect(memory.u8.subarray(4096, 4096 + 50)).toEqual(memory.u8.subarray(50, 100));
      expect(tcpSend(client, memory.address, 100)).toBe(100);
      receiveAll(server, memory.address + 4096 + 100, 3996);
      receiveAll(server, memory.address + 4096, 100);
      expect(pieces.receive(server)).toBe(-Errno.EAGAIN);
      expect(memory.u8.subarray(4096)).toEqual(memory.u8.subarray(0, 4096));
      expect(tcpRecv(server, memory.address, 1)).toBe(-Errno.EAGAIN);
      tcpShutdown(client);
      let end = tcpRecv(server, memory.address, 1);
      while (end === -Errno.EAGAIN) end = tcpRecv(server, memory.address, 1);
      expect(end).toBe(0);
      expect(tcpSend(client, memory.address, 1)).toBe(-Errno.EPIPE);
    } finally {
      pieces.free();
      tcpClose(client);
      tcpClose(server);
    }
  });

  it('fails without a listener, and has options', () => {
    const free = tcpListen({ address, port: 0 }, 1);
    const unused = tcpLocalAddress(free);
    tcpClose(free);
    const fd = tcpSocket(familyOf(address)!);
    try {
      setSocketOption(fd, SocketOption.NODELAY, 1);
      expect(getSocketOption(fd, SocketOption.NODELAY)).toBe(1);
      const begin = (): number => {
        tcpConnect(fd, unused);
        let code = tcpError(fd);
        while (code === 0) code = tcpError(fd);
        return code;
      };
      // The kernel reports it at once or a little later.
      let refusal: unknown;
      try {
        refusal = begin();
      } catch (error) {
        refusal = (error as { errno: number }).errno;
      }
      expect(refusal).toBe(Errno.ECONNREFUSED);
      expect(sourceAddressTo(address)).toBe(address);
    } finally {
      tcpClose(fd);
    }
  });
});

describe('an event set', () => {
  it('reports ready descriptors, and wakes the event loop', async () => {
    const [client, server] = pairOn('127.0.0.1');
    using memory = mapAnonymous(4096);
    const set = new EventSet();
    try {
      set.add(client, ReadyFor.READ, 1);
      set.add(server, ReadyFor.READ | ReadyFor.WRITE, 0xffff_fff0);
      expect(set.poll()).toBe(1);
      expect([set.token(0), set.events(0)]).toEqual([0xffff_fff0, ReadyFor.WRITE]);
      set.modify(server, ReadyFor.READ, 7);
      expect(set.poll()).toBe(0);
      const woken = new Promise<void>((resolve) => {
        const subscription = pollReadable(set.fd, () => {
          subscription.close();
          resolve();
        });
      });
      expect(tcpSend(client, memory.address, 8)).toBe(8);
      await woken;
      expect(set.poll()).toBe(1);
      expect(set.token(0)).toBe(7);
      set.remove(server);
      expect(set.poll()).toBe(0);
    } finally {
      set.close();
      set.close();
      tcpClose(client);
      tcpClose(server);
    }
  });

  it('reports a server of node:net as writable when it has accepted', async () => {
    const server = createServer((socket) => socket.end('hello'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    const fd = tcpSocket(AddressFamily.INET);
    using memory = mapAnonymous(4096);
    tcpConnect(fd, { address: '127.0.0.1', port });
    let received = tcpRecv(fd, memory.address, 16);
    while (received === -Errno.EAGAIN) {
      await new Promise((resolve) => setImmediate(resolve));
      received = tcpRecv(fd, memory.address, 16);
    }
    expect(Buffer.from(memory.u8.subarray(0, received)).toString()).toBe('hello');
    tcpClose(fd);
    await new Promise((resolve) => server.close(resolve));
  });
});

describe('addresses', () => {
  it('are parsed and printed', () => {
    expect(addressText(addressBytes('10.1.2.3'))).toBe('10.1.2.3');
    expect(addressText(addressBytes('fe80::1:2%lo'))).toBe('fe80::1:2');
    expect(addressText(new Uint8Array(5))).toBeUndefined();
    expect(printAddress({ address: '::1', port: 7 })).toBe('[::1]:7');
    expect(printAddress({ address: '127.0.0.1', port: 7 })).toBe('127.0.0.1:7');
    expect(familyOf('localhost')).toBeUndefined();
  });

  it('that are invalid are rejected by name', () => {
    expect(() => tcpListen({ address: 'localhost', port: 0 }, 1)).toThrow(/address must be a numeric/);
    expect(() => tcpListen({ address: '127.0.0.1', port: 65_536 }, 1)).toThrow(/port must be an integer/);
    expect(() => tcpListen({ address: 'fe80::1%nowhere0', port: 0 }, 1)).toThrow(/zone/);
    expect(() => tcpListen({ address: '192.0.2.1', port: 0 }, 1)).toThrow(/EADDRNOTAVAIL/);
  });

  it('accepts both families on ::, with the addresses of their own', () => {
    const listener = tcpListen({ address: '::', port: 0 }, 2);
    const { port } = tcpLocalAddress(listener);
    for (const [family, address] of [
      [AddressFamily.INET, '127.0.0.1'],
      [AddressFamily.INET6, '::1'],
    ] as const) {
      const client = tcpSocket(family);
      tcpConnect(client, { address, port });
      let accepted = tcpAccept(listener);
      while (accepted === -Errno.EAGAIN) accepted = tcpAccept(listener);
      expect(tcpRemoteAddress(accepted).address).toBe(address);
      expect(tcpLocalAddress(accepted).address).toBe(address);
      tcpClose(client);
      tcpClose(accepted);
    }
    tcpClose(listener);
  });
});
