/** Selection of a peer's address for each device: only addresses that are certain to be reached. */

import { describe, expect, it } from 'vitest';
import { type NetworkInterface, type Routing, reachOf, sameSubnet, type TcpAddress } from './address.ts';

type Address = NetworkInterface['addresses'][number];

function address(text: string): Address {
  const [name = '', bits] = text.split('/');
  return { address: name, family: name.includes(':') ? 6 : 4, prefixBits: Number(bits) };
}

function device(name: string, ...addresses: string[]): NetworkInterface {
  const isLoopback = name === 'lo';
  return { name, addresses: addresses.map(address), isLoopback, isBridge: false, bytesPerSecond: undefined };
}

function peer(addresses: readonly string[], changes: Partial<TcpAddress> = {}): TcpAddress {
  const told = addresses.map(address);
  return { id: new Uint8Array(16), port: 5000, isLoopback: false, isOwnNode: false, addresses: told, ...changes };
}

/** @param routes own address from which each address is reached */
function routing(own: readonly string[], routes: Readonly<Record<string, string>> = {}): Routing {
  return { ownAddresses: () => new Set(own), sourceAddressTo: (target) => routes[target] };
}

const LO = device('lo', '127.0.0.1/8', '::1/128');
const ETH0 = device('eth0', '10.0.0.1/24', 'fd00::1/64');
const OWN = routing(['127.0.0.1', '::1', '10.0.0.1', 'fd00::1', '172.17.0.1']);

describe('reachOf', () => {
  it('uses any address of a peer on the same node', () => {
    const own = peer(['127.0.0.1/8'], { isOwnNode: true, isLoopback: true });
    expect(reachOf(LO, own, OWN)).toEqual({ address: '127.0.0.1' });
    expect(reachOf(ETH0, own, OWN)).toEqual({ address: '127.0.0.1' });
    expect(reachOf(device('v6', 'fd00::1/64'), own, OWN)).toEqual({
      reason: 'v6 and the peer have no address family in common',
    });
  });

  it.each([
    ['from loopback', LO, peer(['10.0.0.2/24']), /loopback device reaches peers on this host only/],
    ['on loopback', ETH0, peer(['127.0.0.1/8'], { isLoopback: true }), /listens on its loopback device only/],
    ['that does not listen', ETH0, peer([]), /does not listen/],
    ['without a port', ETH0, peer(['10.0.0.2/24'], { port: 0 }), /does not listen/],
    ['with the address of docker0 here', ETH0, peer(['172.17.0.1/16']), /is an address of this host too: 172.17.0.1/],
    ['of another family', device('eth0', '10.0.0.1/24'), peer(['fd00::2/64']), /no address family in common/],
    ['without a route', ETH0, peer(['192.168.7.7/24']), /no route through eth0 to 192.168.7.7/],
  ])('does not reach a peer on another node %s', (_name, from, to, reason) => {
    expect((reachOf(from, to, OWN) as { reason: string }).reason).toMatch(reason);
  });

  it('prefers an address in the network of the device, then one that is routed through the device', () => {
    const routes = routing(['10.0.0.1'], { '192.168.7.7': '10.0.0.1', '192.168.8.8': '10.9.9.9' });
    expect(reachOf(ETH0, peer(['192.168.7.7/24', '10.0.0.9/24']), routes)).toEqual({ address: '10.0.0.9' });
    expect(reachOf(ETH0, peer(['192.168.8.8/24', '192.168.7.7/24']), routes)).toEqual({ address: '192.168.7.7' });
    expect(reachOf(ETH0, peer(['192.168.8.8/24']), routes)).toHaveProperty('reason');
    expect(reachOf(ETH0, peer(['172.17.0.1/16', '10.0.0.9/24']), OWN)).toEqual({ address: '10.0.0.9' });
    expect(reachOf(ETH0, peer(['fd00::9/64']), OWN)).toEqual({ address: 'fd00::9' });
  });
});

describe('sameSubnet', () => {
  it.each([
    ['10.0.0.1/24', '10.0.0.200/24', true],
    ['10.0.0.1/24', '10.0.1.1/24', false],
    ['10.0.0.1/25', '10.0.0.129/25', false],
    ['10.0.0.1/25', '10.0.0.126/25', true],
    ['10.0.0.1/32', '10.0.0.1/32', true],
    ['10.0.0.1/32', '10.0.0.2/32', false],
    ['10.0.0.1/0', '10.0.0.2/0', false],
    ['10.0.0.1/24', 'fd00::1/64', false],
    ['fd00::1/64', 'fd00::ffff:1/64', true],
    ['fd00::1/64', 'fd00:0:0:1::1/64', false],
    ['fd00::1/65', 'fd00::8000:0:0:1/65', false],
    ['fe80::1%lo/64', 'fe80::2/64', true],
  ])('of %s and %s is %s', (left, right, expected) => {
    expect(sameSubnet(address(left), address(right))).toBe(expected);
  });
});
