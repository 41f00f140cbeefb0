/** Transports in worker addresses that UCX has packed. */

import { describe, expect, it } from 'vitest';
import { withoutTransports } from './worker-address.ts';

/** Addresses of plain UCX programs with the transports self, tcp, sysv, posix and cma; UCX_ADDRESS_VERSION selects the version. */
const PACKED: Readonly<Record<string, string>> = {
  'version 1 (UCX 1.13)':
    '20e18530cf257df2ab2000637577cc2b3200f8d74f00000000004f030088d84598842393c400211201024344e15448b05eacf9ffffef00000000cf1917b75138539e3e4bd7e0373701132300828c1b21060002c0000202cf1917b751389763344bd7e037370013230082e85142084344e15448b05e2c8d5377cc2b32004c3e5077ccab33004f230088270004010000000043084344e15448b05e2ca7d377cc2b32004c3e5077ccab33004f2300883a7e0080030000c024884344e15448b05e2c478bbd37063600242e5077ccab3300922100843a7e0000',
  'version 1 with the release of UCX (1.22)':
    '20117549f1a98bf6510000637577cc2b320040975000000000004f030088d1a64081ec700d1301060002c0000202cf1917b751389763344bd7e037370013230082ed6d010e01024344e15448b05eacf9ffffefcf1917b75138539e3e4bd7e037370113230082c7c102084344e15448b05e2c8d5377cc2b320000705077ccab33004f230088310007010000000003084344e15448b05e2ca7d377cc2b320000705077ccab33004f230088ef120080030000c004084344e15448b05e2c478bbd37063600242e5077ccab330092210084ef1200008680',
  'version 2 (UCX 1.22)':
    '6102bb2aceb7a2e5193e000063754426000080001b0088906b3dab66d108bb01060002c0000202cf190c015a0080008b0082ce13010e01024344e15448b05eacf9ffffefcf190c015a0180008b0082b89502084344e15448b05e2c8d5344e5430081009b00882c0007010000000003084344e15448b05e2ca7d344e5430081009b0088b8120080030000c004884344e15448b05e2c478bfb5543000000990084b8120000',
};
const POSIX = 'a7d3';
const SYSV = '8d53';

describe.each(Object.entries(PACKED))('an address of %s', (_version, hex) => {
  const address = Buffer.from(hex, 'hex');

  it('loses only the names of the transports that are left out', () => {
    const hidden = withoutTransports(address, ['posix', 'sysv'])!;
    expect(Buffer.from(hidden).toString('hex')).toBe(hex.replace(POSIX, '0000').replace(SYSV, '0000'));
    expect(address.toString('hex')).toBe(hex);
  });

  it('is left alone if it ends elsewhere', () => {
    for (const byteLength of [0, 1, 20, address.byteLength - 1]) {
      expect(withoutTransports(address.subarray(0, byteLength), ['posix', 'sysv'])).toBeUndefined();
    }
    expect(withoutTransports(Buffer.concat([address, Uint8Array.of(1)]), ['posix', 'sysv'])).toBeUndefined();
  });

  it('is left alone without such a transport', () => {
    const hidden = withoutTransports(address, ['posix'])!;
    expect(withoutTransports(hidden, ['posix'])).toBeUndefined();
    expect(withoutTransports(address, [])).toBeUndefined();
  });
});

it('an address of another version is left alone', () => {
  const address = Buffer.from(PACKED['version 1 (UCX 1.13)']!, 'hex');
  address[0]! |= 7;
  expect(withoutTransports(address, ['posix'])).toBeUndefined();
});
