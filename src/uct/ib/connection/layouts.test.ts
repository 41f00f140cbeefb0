/** Addresses and messages of ib that peers send: each field arrives, and what no peer sends is refused. */

import { describe, expect, it } from 'vitest';
import { LinkLayer } from '../../../verbs/abi.ts';
import { DEVICES_MAX } from '../base/key.ts';
import { type IbAddress, ibUnreachableReason, packIbAddress, unpackIbAddress } from './address.ts';
import { CONNECT_BYTES, type ConnectMessage, packConnect, unpackConnect } from './layout.ts';

const bytes = (length: number, first: number): Uint8Array => Uint8Array.from({ length }, (_, i) => first + i);

const ADDRESS: IbAddress = {
  linkLayer: LinkLayer.ETHERNET,
  mtu: 4,
  deviceIndex: 3,
  lid: 0x1234,
  qpNum: 0x56789a,
  qkey: 0x1bcdef01,
  segBytes: 8192,
  gid: bytes(16, 10),
  id: bytes(16, 40),
};

const MESSAGE: ConnectMessage = {
  type: 2,
  mtu: 5,
  lid: 0x4321,
  qpNum: 0xffffff,
  psn: 0xfffffe,
  maxReads: 255,
  answerQpNum: 0xfffffd,
  answerQkey: 0x7edcba98,
  connection: bytes(8, 1),
  gid: bytes(16, 20),
  sender: bytes(16, 50),
  receiver: bytes(16, 80),
};

function received(message: ConnectMessage): ConnectMessage | undefined {
  const packed = new Uint8Array(CONNECT_BYTES);
  packConnect(message, packed, 0);
  return unpackConnect(packed);
}

describe('an address', () => {
  it('arrives with each of its fields', () => {
    expect(unpackIbAddress(packIbAddress(ADDRESS))).toEqual(ADDRESS);
  });

  it.each([{ deviceIndex: DEVICES_MAX }, { mtu: 0 }, { mtu: 6 }, { qpNum: 2 ** 24 }])('with %j is refused', (more) => {
    expect(unpackIbAddress(packIbAddress({ ...ADDRESS, ...more }))).toBeUndefined();
  });

  it('of another link layer, length of messages or subnet is not reached', () => {
    const infiniband = { ...ADDRESS, linkLayer: LinkLayer.INFINIBAND };
    expect(ibUnreachableReason(ADDRESS, { ...ADDRESS, gid: bytes(16, 90) })).toBeUndefined();
    expect(ibUnreachableReason(ADDRESS, infiniband)).toMatch(/link layer/);
    expect(ibUnreachableReason(ADDRESS, { ...ADDRESS, segBytes: 4096 })).toMatch(
      /message size of the peer is 4096, that of this process 8192/,
    );
    expect(ibUnreachableReason(infiniband, { ...infiniband, gid: bytes(16, 11) })).toMatch(/subnet/);
    const samePrefix = infiniband.gid.slice().fill(0, 8);
    expect(ibUnreachableReason(infiniband, { ...infiniband, gid: samePrefix })).toBeUndefined();
  });
});

describe('a message that makes a connection', () => {
  it('arrives with each of its fields', () => {
    expect(received(MESSAGE)).toEqual(MESSAGE);
  });

  it.each([
    { type: 0 },
    { type: 4 },
    { mtu: 0 },
    { mtu: 6 },
    { qpNum: 2 ** 24 },
    { psn: 2 ** 24 },
    { answerQpNum: 2 ** 24 },
    { maxReads: 256 },
  ] as Partial<ConnectMessage>[])('with %j is refused', (more) => {
    expect(received({ ...MESSAGE, ...more })).toBeUndefined();
  });
});
