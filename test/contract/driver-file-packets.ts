/** Contract cases: packets that command processors execute. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../src/driver/port.ts';
import {
  fenceCfg,
  msgShortCtl,
  type PacketAsic,
  PacketOpcode,
  packetCtl,
  type SyncManagerProfile,
  writeFence,
  writeMsgShort,
} from '../../src/uapi/index.ts';
import { DriverFixture, halves } from './driver-fixture.ts';

/** A write to a sync object that adds 1. */
const ADD_ONE = 0x8000_0001;
/** CP_MSG_BASE registers: monitors and sync objects, of the manager of {@link managerOf}. */
const MONITORS = 0;
const OBJECTS = 1;

/** The sync manager of message bases 0 and 1: E_N of gaudi, that of dcore 0 of gaudi2. */
function managerOf({ profile }: DriverFixture): SyncManagerProfile {
  return profile.sync.managers.find(({ sobObj }) => sobObj === profile.cpMsgBase[OBJECTS])!;
}

/** Packets that arm a monitor for "the sync object is at least `target`", which adds 1 to fence 0 of the queue, and wait there. */
function waitForObject(fixture: DriverFixture, words: Uint32Array, queue: number, sob: number, target = 1): number {
  const { profile } = fixture;
  const manager = managerOf(fixture);
  const { firstOfQman, stream } = profile.queues[queue]!;
  const fence0 = profile.fences.find(({ firstQueue }) => firstQueue === firstOfQman)!.fence0;
  const [low, high] = halves(profile.cfg.start + BigInt(fence0 + 4 * stream));
  const monitor = manager.firstUserMonitor + (sob - manager.firstUserSob);
  const offsetOf = (register: number): number => register - manager.monPayAddrL + monitor * 4;
  const group = Math.floor(sob / 8);
  const arm = ((target << 17) | ((0xff & ~(1 << (sob % 8))) << 8) | (group & 0xff)) >>> 0;
  const writes: [number, number][] = [
    [manager.monPayAddrL, low],
    [manager.monPayAddrH, high],
    [manager.monPayData, 1],
  ];
  if (manager.monConfig !== 0) writes.push([manager.monConfig, (group >>> 8) << 16]);
  writes.push([manager.monArm, arm]);
  let at = 0;
  for (const [register, value] of writes)
    at = writeMsgShort(words, at, msgShortCtl(MONITORS, offsetOf(register)), value);
  return writeFence(words, at, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
}

export function packetCases(asic: PacketAsic, makeNode: () => DriverNode): void {
  describe('packets', () => {
    const fixture = new DriverFixture(asic, makeNode);

    it('MSG_SHORT reaches every register behind its base: its low bits are no predicate', () => {
      const { client } = fixture;
      fixture.mapAll();
      const { firstUserSob } = managerOf(fixture);
      for (let sob = firstUserSob; sob < firstUserSob + 9; sob++) {
        const waiting = client.submit([fixture.chunk(4, (words) => waitForObject(fixture, words, 4, sob))]).out;
        expect([sob, client.wait(waiting.seq).out.status]).toEqual([sob, 1]);
        fixture.run(0, (words) => writeMsgShort(words, 0, msgShortCtl(OBJECTS, sob * 4), ADD_ONE));
        expect([sob, client.wait(waiting.seq, 1_000_000).out.status]).toEqual([sob, 0]);
      }
    });
  });
}
