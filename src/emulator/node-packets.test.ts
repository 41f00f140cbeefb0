/** Packets that load or name other packets: faults, resets and endless command buffers. */

import { afterEach, describe, expect, it } from 'vitest';
import { DriverClient } from '../../test/contract/driver/driver-client.ts';
import { halves } from '../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../test/contract/driver/emulated-card.ts';
import {
  CP_DMA_UPPER_CP,
  HL_INFO_OP,
  HL_PAGE_FAULT_INFO,
  LoadAndExeCfg,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  writeCpDma,
  writeLoadAndExe,
  writeMsgLong,
  writeShortPacket,
} from '../uapi/index.ts';

const MIB = 2 ** 20;
const COMMANDS = MIB;

describe('packets that load', () => {
  let card: EmulatedCard;
  afterEach(() => card.close());

  function submit(write: (words: Uint32Array) => number, offset: number = COMMANDS): bigint {
    return card.submit(offset, write(card.words(offset)) * 4).out.seq;
  }

  function load(words: Uint32Array, address: bigint): number {
    const configuration = LoadAndExeCfg.LOAD | LoadAndExeCfg.PMAP;
    return writeLoadAndExe(words, 0, packetCtl(PacketOpcode.LOAD_AND_EXE), configuration, ...halves(address));
  }

  it('an address that is not mapped hangs the queue until the time-out resets the card, and its predicates', () => {
    card = new EmulatedCard();
    card.host.words[64] = 1 << 3;
    const message = (words: Uint32Array, at: number, value: number) =>
      writeMsgLong(words, at, msgLongCtl() | 3, value, ...halves(card.hostVa));
    submit((words) => message(words, load(words, card.hostVa + 256n), 5));
    expect(card.host.words[0]).toBe(5);
    const nowhere = card.hostVa + BigInt(64 * MIB);
    const hung = submit((words) => load(words, nowhere));
    expect(card.client.wait(hung).out.status).toBe(1);
    expect(card.client.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO).out.addr).toBe(nowhere);
    card.clock.advance(30e9);
    expect([card.status, card.hardResets]).toEqual([1, 1]);
    card.client.file.close();
    const again = new DriverClient(card.node.open(0));
    const { out } = again.mapHost(card.host.address, card.host.byteLength);
    const end = message(card.words(COMMANDS), 0, 6);
    const { seq } = again.submit([{ queue: 0, cb: out + BigInt(COMMANDS), byteLength: end * 4 }]).out;
    expect([again.wait(seq).out.status, card.host.words[0]]).toEqual([0, 5]);
    again.close();
  });

  it('a buffer that names itself runs in passes, with bounded memory, until the time-out', () => {
    card = new EmulatedCard({ csTimeoutSeconds: 1 });
    const place = card.hostVa + BigInt(COMMANDS);
    const ctl = packetCtl(PacketOpcode.CP_DMA) | CP_DMA_UPPER_CP;
    const endless = submit((words) => writeCpDma(words, 0, ctl, 16, ...halves(place)));
    const { submissions } = card.node.card(0).context!;
    for (let i = 0; i < 20; i++) expect(card.client.wait(endless).out.status).toBe(1);
    const job = submissions.find(Number(endless))!.jobs[0]!;
    expect(job.fetched!.length).toBeLessThanOrEqual(128);
    // Other queues run meanwhile.
    const other = 2 * MIB;
    writeMsgLong(card.words(other), 0, msgLongCtl(), 7, ...halves(card.hostVa));
    expect(card.client.wait(card.submit(other, 16, 8).out.seq).out.status).toBe(0);
    expect(card.host.words[0]).toBe(7);
    card.clock.advance(1e9);
    expect([card.status, card.hardResets]).toEqual([1, 1]);
  });

  it('a loop of fetches fills the lower command processor up to its bound, and waits', () => {
    card = new EmulatedCard();
    const inner = 2 * MIB;
    writeShortPacket(card.words(inner), 0, packetCtl(PacketOpcode.FENCE), 0x1_0001);
    const place = card.hostVa + BigInt(inner);
    const endless = submit((words) => {
      let at = writeShortPacket(words, 0, packetCtl(PacketOpcode.REPEAT), 0);
      at = writeCpDma(words, at, packetCtl(PacketOpcode.CP_DMA), 8, ...halves(place));
      return writeShortPacket(words, at, packetCtl(PacketOpcode.REPEAT), 1);
    });
    for (let i = 0; i < 10; i++) expect(card.client.wait(endless).out.status).toBe(1);
    expect(card.node.card(0).device.stream(0).lower!.pending).toHaveLength(1024);
  });

  it('a loop may span translations', () => {
    card = new EmulatedCard();
    const page = 4096;
    // Two pages that are not contiguous in memory.
    const second = card.client.mapHost(card.host.address + 2 * MIB, page).out;
    const first = card.client.mapHost(card.host.address + 3 * MIB, page).out;
    expect(first - second).toBe(BigInt(page));
    card.host.words[64] = 1 << 3;
    const predicates = card.hostVa + 256n;
    const program = new Uint32Array(64);
    let at = writeShortPacket(program, 0, packetCtl(PacketOpcode.REPEAT), 0);
    at = writeCpDma(program, at, packetCtl(PacketOpcode.NOP), 0, 0, packetCtl(PacketOpcode.NOP));
    const configuration = LoadAndExeCfg.LOAD | LoadAndExeCfg.PMAP;
    at = writeLoadAndExe(program, at, packetCtl(PacketOpcode.LOAD_AND_EXE), configuration, ...halves(predicates));
    at = writeMsgLong(program, at, msgLongCtl(), 0, ...halves(predicates));
    at = writeMsgLong(program, at, msgLongCtl() | 3, 11, ...halves(card.hostVa));
    at = writeShortPacket(program, at, packetCtl(PacketOpcode.REPEAT) | 3, 1);
    at = writeMsgLong(program, at, msgLongCtl(), 12, ...halves(card.hostVa + 4n));
    // The border lies behind the start of the loop.
    const before = 6;
    card.words(2 * MIB + page - before * 4).set(program.subarray(0, before));
    card.words(3 * MIB).set(program.subarray(before, at));
    const { seq } = card.client.submit([{ queue: 0, cb: first - BigInt(before * 4), byteLength: at * 4 }]).out;
    expect(card.client.wait(seq).out.status).toBe(0);
    expect([...card.host.words.subarray(0, 2), card.host.words[64]]).toEqual([11, 12, 0]);
  });
});
