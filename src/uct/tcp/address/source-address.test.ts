/** The own address of connections (UCX_TCP_EP_BIND_SRC_ADDR), and the preference of address families (UCX_TCP_AF_PRIO). */

import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { TcpInterfaces } from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { Status } from '../../../ucs/type/status.ts';
import { type NetworkInterface, packTcpAddress, reachOf, unpackTcpAddress, withFamilies } from '../address.ts';
import { TCP_CONFIG_TABLE } from '../config.ts';
import { Identity } from '../connect/hello.ts';

/** Offset of a byte of the boot id in an address. A different boot id means another node. */
const AT_BOOT = 8;
const PEER = '127.0.0.9';

function device(...addresses: string[]): NetworkInterface {
  return {
    name: 'eth9',
    addresses: addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4, prefixBits: 8 })),
    isLoopback: false,
    isBridge: false,
    bytesPerSecond: undefined,
  };
}

describe('connections', () => {
  const net = new TcpInterfaces();
  const servers: Server[] = [];
  afterEach(() => {
    for (const server of servers.splice(0)) server.close();
  });

  /** Returns the address that a connection comes from, or the failure of sending. */
  async function sourceOf(binds: string, isOwnNode: boolean, ...addresses: string[]): Promise<string | Status> {
    let source: string | undefined;
    const server = createServer((socket) => {
      source = socket.remoteAddress;
      socket.destroy();
    });
    servers.push(server);
    server.listen(0, PEER);
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const address = packTcpAddress(new Identity().id, port, false, [{ address: PEER, family: 4, prefixBits: 8 }]);
    if (!isOwnNode) address[AT_BOOT]! ^= 1;
    const side = net.openOn(device(...addresses), { EP_BIND_SRC_ADDR: binds });
    const endpoint = side.iface.connect(address);
    let status: Status = Status.NO_RESOURCE;
    await net.until([side], () => {
      status = endpoint.amShort(1, Int32Array.of(1, 2), 2, new Uint8Array(0), 0, 0);
      return source !== undefined || status !== Status.NO_RESOURCE;
    });
    return source ?? status;
  }

  it.each([
    ['y', false, '127.0.0.7'],
    ['y', true, '127.0.0.7'],
    ['try', false, '127.0.0.7'],
    ['try', true, '127.0.0.1'],
    ['n', false, '127.0.0.1'],
    ['n', true, '127.0.0.1'],
  ])('EP_BIND_SRC_ADDR=%s, to a peer on this node: %s, come from %s', async (binds, isOwnNode, expected) => {
    expect(await sourceOf(binds, isOwnNode, '127.0.0.7')).toBe(expected);
  });

  it('ignore an address that the machine does not have if binding is optional', async () => {
    expect(await sourceOf('try', false, '203.0.113.5', '127.0.0.7')).toBe('127.0.0.1');
    expect(await sourceOf('y', false, '203.0.113.5', '127.0.0.7')).toBeLessThan(0);
  });
});

describe('address families', () => {
  const net = new TcpInterfaces();
  const both = device('10.0.0.1', 'fd00::1');
  it('have the order of AF_PRIO, and those that it does not name are unused', () => {
    const addresses = (...families: (4 | 6)[]): string[][] =>
      withFamilies([both, device('10.0.0.2')], families).map((each) => each.addresses.map(({ address }) => address));
    expect(addresses(4, 6)).toEqual([['10.0.0.1', 'fd00::1'], ['10.0.0.2']]);
    expect(addresses(6, 4)).toEqual([['fd00::1', '10.0.0.1'], ['10.0.0.2']]);
    expect(addresses(6)).toEqual([['fd00::1']]);
  });

  it('are preferred in the order of the device, not of the peer', () => {
    const routing = { ownAddresses: () => new Set<string>(), sourceAddressTo: () => undefined };
    const peer = { id: new Uint8Array(16), port: 1, isLoopback: false };
    const told = device('10.0.0.9', 'fd00::9').addresses;
    for (const isOwnNode of [true, false]) {
      const reach = (families: (4 | 6)[]): unknown =>
        reachOf(withFamilies([both], families)[0]!, { ...peer, isOwnNode, addresses: told }, routing);
      expect(reach([4, 6])).toEqual({ address: '10.0.0.9' });
      expect(reach([6, 4])).toEqual({ address: 'fd00::9' });
    }
  });

  it('select the addresses on which a device listens, and which it publishes', () => {
    const families = (AF_PRIO: string): number[] =>
      unpackTcpAddress(net.open({ AF_PRIO }).iface.address)!.addresses.map(({ family }) => family);
    expect(families('inet')).toEqual([4]);
    expect(families('inet,inet6')[0]).toBe(4);
  });

  it.each(['', 'inet4', 'inet,inet'])('reject %j', (AF_PRIO) => {
    expect(() => loadConfig([TCP_CONFIG_TABLE], { overrides: { TCP_AF_PRIO: AF_PRIO } })).toThrow(
      expect.objectContaining({
        code: 'ERR_CONFIG_VALUE',
        details: expect.objectContaining({ variable: 'UCX_TCP_AF_PRIO', value: AF_PRIO }),
      }),
    );
  });
});
