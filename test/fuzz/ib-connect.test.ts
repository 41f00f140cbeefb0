/** Mutated messages that make connections of ib, as a peer can send them to the datagram queue pair: bounded, without a crash or a leak, and peers still connect. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../src/index.ts';
import { createRandom, type Random } from '../../src/ucs/sys/random.ts';
import type { IbAddress } from '../../src/uct/ib/connection/address.ts';
import {
  CONNECT_BYTES,
  CONNECTION_ID_BYTES,
  type ConnectMessage,
  type ConnectType,
  packConnect,
  unpackConnect,
} from '../../src/uct/ib/connection/layout.ts';
import { IbIface } from '../../src/uct/ib/iface.ts';
import { openIb } from '../contract/uct/uct-implementations.ts';
import { catches } from '../fixtures/catches.ts';
import { extent, timeLimit } from '../fixtures/extent.ts';
import { expectNoLeaks } from '../fixtures/leak-check.ts';
import { createTestLog } from '../fixtures/test-log.ts';

const SEED = Number(process.env['GAUDI_UCX_FUZZ_SEED'] ?? 20_240);
const ROUNDS = extent('GAUDI_UCX_FUZZ_ROUNDS', 3000, 100_000);
const TIMEOUT_MS = timeLimit(ROUNDS);
/** Datagrams that the receiver holds before it reads them. */
const AT_ONCE = 32;
const TURNS_MAX = 1_000_000;

function messageFrom(random: Random, sender: IbAddress, receiver: IbAddress): ConnectMessage {
  return {
    type: (1 + random.below(3)) as ConnectType,
    mtu: 3,
    lid: sender.lid,
    qpNum: random.below(2) === 0 ? sender.qpNum : random.below(2 ** 24),
    psn: random.below(2 ** 24),
    maxReads: random.below(256),
    answerQpNum: random.below(4) === 0 ? random.below(2 ** 24) : sender.qpNum,
    answerQkey: random.below(4) === 0 ? random.nextU32() : sender.qkey,
    connection: random.bytes(CONNECTION_ID_BYTES).map((byte) => byte & 1),
    gid: random.below(4) === 0 ? random.bytes(sender.gid.byteLength) : sender.gid,
    sender: random.below(2) === 0 ? random.bytes(sender.id.byteLength) : sender.id,
    receiver: receiver.id,
  };
}

describe('fuzzed connect messages of ib', () => {
  expectNoLeaks();

  function checkMessages(unpack: typeof unpackConnect): void {
    const random = createRandom(SEED);
    const address = { lid: 1, qpNum: 5, qkey: 6, gid: random.bytes(16), id: random.bytes(16) } as IbAddress;
    let valid = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const packed = new Uint8Array(CONNECT_BYTES);
      packConnect(messageFrom(random, address, address), packed, 0);
      const bytes = random.below(8) === 0 ? random.bytes(random.below(CONNECT_BYTES * 2)) : packed;
      for (let changes = random.below(3); changes > 0; changes--)
        bytes[random.below(bytes.byteLength + 1)]! ^= 1 << random.below(8);
      const message = unpack(bytes);
      if (message === undefined) continue;
      valid += 1;
      const again = new Uint8Array(CONNECT_BYTES);
      packConnect(message, again, 0);
      expect(Buffer.compare(again, bytes)).toBe(0);
    }
    expect(valid).toBeGreaterThan(ROUNDS / 10);
  }

  it('that are not valid are not read, others as they were written', { timeout: TIMEOUT_MS }, () =>
    checkMessages(unpackConnect),
  );

  it('that are read with a wrong field, or not at all, are noticed', async () => {
    const withoutPsn: typeof unpackConnect = (bytes) => {
      const message = unpackConnect(bytes);
      return message && { ...message, psn: 0 };
    };
    await catches(checkMessages, withoutPsn, /to be \+?0/);
    await catches(checkMessages, () => undefined, /greater than/);
  });

  it('are refused or make connections, and a peer can still connect', { timeout: TIMEOUT_MS }, async () => {
    const log = createTestLog();
    log.allow(/^a connection (from a peer )?is refused: |more warnings about peers were left out/);
    const under = openIb(log);
    const [near, far] = under.md.resources.map((resource) => under.md.openIface(resource));
    if (!(near instanceof IbIface && far instanceof IbIface)) return expect.fail('two interfaces of ib');
    let received = 0;
    far.setAmHandler(() => {
      received += 1;
    });
    const random = createRandom(SEED);
    for (let round = 0; round < ROUNDS; round++) {
      near.datagrams.send(messageFrom(random, near.self, far.self), far.self);
      if (round % AT_ONCE > 0) continue;
      for (const iface of [near, far]) iface.progress();
      await new Promise(setImmediate);
    }
    // If made-up connections have taken all places, they fail when they are probed, and make room.
    let endpoint = near.connect(far.address);
    let status: Status = Status.NO_RESOURCE;
    for (let round = 0; received === 0 && round < TURNS_MAX; round++) {
      if (status === Status.REJECTED) {
        endpoint.close();
        endpoint = near.connect(far.address);
      }
      if (status !== Status.OK) status = endpoint.amShort(1, new Int32Array(2), 2, undefined, 0, 0);
      for (const iface of [near, far]) iface.progress();
      await new Promise(setImmediate);
    }
    expect([status, received]).toEqual([Status.OK, 1]);
    endpoint.close();
    for (const iface of [near, far]) iface.close();
    under.md.close();
    under.close();
    log.expectQuiet();
  });
});
