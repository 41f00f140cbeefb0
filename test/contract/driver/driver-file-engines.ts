/** Contract cases: CS with commands to engines and their cores, and with the flush of PCI writes. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { Errno } from '../../../src/sys/index.ts';
import {
  engineIdOf,
  GAUDI2_ENGINE_CORES,
  GAUDI2_ENGINES,
  Gaudi2QueueBase,
  HL_CS_FLAGS,
  HL_ENGINE_COMMAND,
  HL_INFO_HW_IDLE,
  HL_INFO_OP,
  linDmaCtl,
  type PacketAsic,
  PacketOpcode,
  packetCtl,
  writeLinDma,
  writeNop,
} from '../../../src/uapi/index.ts';
import { DriverFixture, halves } from './driver-fixture.ts';

const NO_SEQ = 2n ** 64n - 1n;
const { CORE_HALT, CORE_RUN, STALL, RESUME } = HL_ENGINE_COMMAND;

export function engineCases(asic: PacketAsic, makeNode: () => DriverNode): void {
  describe('CS with commands to engines', () => {
    const fixture = new DriverFixture(asic, makeNode);
    const cores = (ids: readonly number[], command: number, count = ids.length) =>
      send(HL_CS_FLAGS.ENGINE_CORE_COMMAND, ids, command, count);
    const engines = (ids: readonly number[], command: number, count = ids.length) =>
      send(HL_CS_FLAGS.ENGINES_COMMAND, ids, command, count);

    function send(cs_flags: number, ids: readonly number[], engine_command: number, num_engines: number) {
      const { client } = fixture;
      for (const [index, id] of ids.entries()) client.data.setUint32(index * 4, id, true);
      return client.cs({ cs_flags, engines: BigInt(client.dataAddress), num_engines, engine_command });
    }

    it('flushes writes over PCI', () => {
      const { result, out } = fixture.client.cs({ cs_flags: HL_CS_FLAGS.FLUSH_PCI_HBW_WRITES });
      expect([result, out.seq, out.status]).toEqual([0, NO_SEQ, 0]);
      const both = HL_CS_FLAGS.FLUSH_PCI_HBW_WRITES | HL_CS_FLAGS.ENGINES_COMMAND;
      expect(fixture.client.cs({ cs_flags: both }).result).toBe(-Errno.EINVAL);
    });

    if (asic === 'gaudi') {
      it('has no such commands', () => {
        expect([cores([0], CORE_RUN).result, engines([0], RESUME).result]).toEqual([-Errno.EPERM, -Errno.EPERM]);
      });
      return;
    }

    it('checks command, number and list', () => {
      const { client } = fixture;
      expect([cores([], CORE_RUN).result, engines([], RESUME).result]).toEqual([-Errno.EINVAL, -Errno.EINVAL]);
      expect(cores([0], CORE_RUN, GAUDI2_ENGINE_CORES + 1).result).toBe(-Errno.EINVAL);
      expect(engines([0], CORE_RUN, GAUDI2_ENGINE_CORES + 1).result).toBe(-Errno.EINVAL);
      expect(engines([0], RESUME, GAUDI2_ENGINES + 1).result).toBe(-Errno.EINVAL);
      for (const command of [0, STALL, RESUME, 5])
        expect([command, cores([0], command).result]).toEqual([command, -Errno.EINVAL]);
      for (const command of [0, 5, 0xffff_ffff])
        expect([command, engines([0], command).result]).toEqual([command, -Errno.EINVAL]);
      const bad = { engines: 64n, num_engines: 1, engine_command: CORE_RUN };
      for (const cs_flags of [HL_CS_FLAGS.ENGINE_CORE_COMMAND, HL_CS_FLAGS.ENGINES_COMMAND]) {
        expect(client.cs({ ...bad, cs_flags })).toMatchObject({ result: -Errno.EFAULT, out: { seq: NO_SEQ } });
      }
    });

    it('halts and runs cores, and ignores missing ones', () => {
      const all = Array.from({ length: GAUDI2_ENGINE_CORES }, (_, id) => id);
      for (const command of [CORE_HALT, CORE_RUN]) {
        expect(cores(all, command)).toMatchObject({ result: 0, out: { seq: NO_SEQ, status: 0 } });
        expect(engines([4711], command).result).toBe(0);
      }
    });

    it('stalls EDMAs, MMEs and TPCs, and nothing else', () => {
      const { profile } = fixture;
      const ofKind = (kind: string) => [
        ...new Set(profile.queues.filter(({ engine }) => engine === kind).map((queue) => engineIdOf(asic, queue))),
      ];
      const tpcs = ofKind('tpc');
      expect([ofKind('edma').length, ofKind('mme').length, tpcs.length]).toEqual([8, 4, 25]);
      const seventh = tpcs.find((id) => id >= 44)!;
      const named = [...ofKind('edma'), ...ofKind('mme'), ...tpcs.filter((id) => id !== seventh)];
      for (const command of [STALL, RESUME]) expect(engines(named, command).result).toBe(0);
      for (const id of [seventh, ...ofKind('pdma'), ...ofKind('rotator'), ...ofKind('nic'), 78, 79]) {
        expect([id, engines([id], RESUME).result]).toEqual([id, -Errno.EINVAL]);
      }
    });

    it('starts no transfer of a stalled EDMA until it is resumed', () => {
      const { client, host } = fixture;
      const hostVa = fixture.mapAll();
      const queue = Gaudi2QueueBase.DCORE0_EDMA_0;
      const id = engineIdOf(asic, fixture.profile.queues[queue]!);
      host.u8.fill(7, 0, 64);
      expect(engines([id], STALL).result).toBe(0);
      const device = fixture.deviceMemory();
      const [low, high] = halves(device);
      writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));
      const nop = fixture.submitCommands(8, queue);
      expect(client.wait(nop.out.seq).out.status).toBe(0);
      writeLinDma(fixture.commands, 0, linDmaCtl(asic), 64, ...halves(hostVa), low, high);
      const { out } = fixture.submitCommands(24, queue);
      expect(client.wait(out.seq).out.status).toBe(1);
      expect(client.info(HL_INFO_OP.HW_IDLE, HL_INFO_HW_IDLE).out.is_idle).toBe(0);
      expect(engines([id], RESUME).result).toBe(0);
      expect(client.wait(out.seq, 10_000_000).out.status).toBe(0);
      fixture.copy(device, hostVa + 4096n, 64);
      expect(host.u8.subarray(4096, 4160)).toEqual(new Uint8Array(64).fill(7));
    });

    it('stops the queue manager of a stalled MME, until the card is reset', () => {
      const { client } = fixture;
      fixture.mapAll();
      const queue = Gaudi2QueueBase.DCORE0_EDMA_0 + 8;
      const id = engineIdOf(asic, fixture.profile.queues[queue]!);
      expect(engines([id], STALL).result).toBe(0);
      writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));
      expect(client.wait(fixture.submitCommands(8, queue).out.seq).out.status).toBe(1);
      client.close();
      fixture.open();
      fixture.mapAll();
      expect(fixture.client.wait(fixture.submitCommands(8, queue).out.seq).out.status).toBe(0);
    });
  });
}
