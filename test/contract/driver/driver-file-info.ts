/** Contract cases: INFO. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { close, Errno, EventFd, pipe2 } from '../../../src/sys/index.ts';
import {
  type AsicName,
  HL_INFO_ARGS,
  HL_INFO_CS_COUNTERS,
  HL_INFO_DEV_MEMALLOC_PAGE_SIZES,
  HL_INFO_HW_IDLE,
  HL_INFO_HW_IP_INFO,
  HL_INFO_OP,
  HL_INFO_SEC_ATTEST,
  HL_INFO_SIGNED,
  HL_INFO_SYNC_MANAGER,
  HL_INFO_TIME_SYNC,
  HL_PLL_FREQUENCY_INFO,
  PacketOpcode,
  packetCtl,
  reportedDramBase,
  writeNop,
} from '../../../src/uapi/index.ts';
import { requires } from '../../fixtures/requires.ts';
import { DriverFixture } from './driver-fixture.ts';

/** Default page of device memory, PLLs, and requests of FW_GENERIC_REQ, by generation. */
const PAGE_BYTES: Readonly<Record<AsicName, bigint>> = { gaudi: 2n << 20n, gaudi2: 768n << 20n, gaudi3: 32n << 20n };
const PLLS: Readonly<Record<AsicName, number>> = { gaudi: 10, gaudi2: 12, gaudi3: 14 };
const FIRMWARE_REQUESTS: Readonly<Record<AsicName, number>> = { gaudi: 1, gaudi2: 1, gaudi3: 4 };

export function infoCases(asic: AsicName, makeNode: () => DriverNode): void {
  describe('INFO', () => {
    const fixture = new DriverFixture(asic, makeNode);

    it('checks its arguments', () => {
      const { client } = fixture;
      expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 304, pad: 1 })).toBe(-Errno.EINVAL);
      expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 0 })).toBe(-Errno.EINVAL);
      expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 304, return_pointer: 0n })).toBe(-Errno.EINVAL);
      expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 304, return_pointer: 64n })).toBe(-Errno.EFAULT);
      const kernelAddress = 0xffff_8000_0000_0000n;
      const values = { op: HL_INFO_OP.DEVICE_STATUS, return_size: 8, return_pointer: kernelAddress };
      expect(client.infoRaw(values)).toBe(-Errno.EFAULT);
      expect(client.infoRaw({ op: 5, return_size: 8 })).toBe(-Errno.EINVAL);
      expect(client.infoRaw({ op: 9999, return_size: 8 })).toBe(-Errno.EINVAL);
    });

    it('copies no more than the length of the buffer', () => {
      const { client } = fixture;
      client.answer.u8.fill(0xaa);
      expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 16 })).toBe(0);
      expect(client.answer.u8[16]).toBe(0xaa);
      client.answer.u8.fill(0xaa);
      expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 4096 })).toBe(0);
      expect(client.answer.u8[HL_INFO_HW_IP_INFO.size]).toBe(0xaa);
    });

    it('describes the ASIC', () => {
      const { hw, profile } = fixture;
      expect(hw.device_id).toBe(profile.pciDeviceId);
      expect(hw.revision_id).toBeGreaterThan(0);
      expect(hw.dram_page_size).toBe(profile.dram.pageSize);
      expect(hw.device_mem_alloc_default_page_size).toBe(PAGE_BYTES[asic]);
      expect(hw.dram_size % hw.dram_page_size).toBe(0n);
      expect(hw.dram_enabled).toBe(1);
      expect(hw.sram_base_address).toBe(profile.sram.start);
      if (asic === 'gaudi') expect(hw.dram_base_address).toBe(reportedDramBase(profile.dram, profile.dram.size));
      expect(Buffer.from(hw.card_name).toString().replaceAll('\0', '')).not.toBe('');
    });

    it('supports every op of an operational card', () => {
      const { client, profile } = fixture;
      const { HW_EVENTS, HW_EVENTS_AGGREGATE } = HL_INFO_OP;
      const skipped: number[] = [
        ...(profile.capabilities.eventStatistics ? [] : [HW_EVENTS, HW_EVENTS_AGGREGATE]),
        HL_INFO_OP.REGISTER_EVENTFD,
        HL_INFO_OP.UNREGISTER_EVENTFD,
        HL_INFO_OP.FW_GENERIC_REQ,
        HL_INFO_OP.SECURED_ATTESTATION,
        HL_INFO_OP.DEV_SIGNED,
      ];
      for (const op of Object.values(HL_INFO_OP).filter((value) => !skipped.includes(value))) {
        expect([op, client.infoRaw({ op, return_size: 8192 })]).toEqual([op, 0]);
      }
    });

    it('signs the nonce of the query, if the firmware signs', () => {
      const { client } = fixture;
      const nonce = { sec_attest_nonce: 0xdeadbeef };
      const reports = [
        client.info(HL_INFO_OP.SECURED_ATTESTATION, HL_INFO_SEC_ATTEST, nonce),
        client.info(HL_INFO_OP.DEV_SIGNED, HL_INFO_SIGNED, nonce),
      ];
      requires(
        reports.every(({ result }) => result !== -Errno.EOPNOTSUPP && result !== -Errno.EINVAL),
        'firmware that attests',
      );
      for (const { result, out } of reports) expect([result, out.nonce]).toEqual([0, 0xdeadbeef]);
    });

    it('reports the first objects of each dcore', () => {
      const { client, profile } = fixture;
      const first = client.info(HL_INFO_OP.SYNC_MANAGER, HL_INFO_SYNC_MANAGER, { dcore_id: 0 }).out;
      expect(first.first_available_sync_object).toBe(profile.sync.managers[0]!.firstUserSob);
      expect(first.first_available_monitor).toBe(profile.sync.managers[0]!.firstUserMonitor);
      expect(client.infoRaw({ op: HL_INFO_OP.SYNC_MANAGER, return_size: 16, dcore_id: 7 })).toBe(0);
      expect(client.infoRaw({ op: HL_INFO_OP.SYNC_MANAGER, return_size: 16, dcore_id: 8 })).toBe(-Errno.EINVAL);
    });

    it('reports times, idleness, frequencies, page sizes and counters', () => {
      const { client, profile } = fixture;
      const one = client.info(HL_INFO_OP.TIME_SYNC, HL_INFO_TIME_SYNC).out;
      const two = client.info(HL_INFO_OP.TIME_SYNC, HL_INFO_TIME_SYNC).out;
      expect(two.host_time).toBeGreaterThanOrEqual(one.host_time);
      expect(client.info(HL_INFO_OP.HW_IDLE, HL_INFO_HW_IDLE).out).toMatchObject({ is_idle: 1, busy_engines_mask: 0 });
      const { out } = client.info(HL_INFO_OP.DEV_MEM_ALLOC_PAGE_SIZES, HL_INFO_DEV_MEMALLOC_PAGE_SIZES);
      const known = profile.dram.pageSizes.reduce((mask, size) => mask | size, 0n);
      expect(out.page_order_bitmask & ~known).toBe(0n);
      const pll = (pll_index: number) =>
        client.info(HL_INFO_OP.PLL_FREQUENCY, HL_PLL_FREQUENCY_INFO, { pll_index }).result;
      const count = PLLS[asic];
      expect([pll(0), pll(count - 1), pll(count), pll(2 ** 32 - 1)]).toEqual([0, 0, -Errno.EINVAL, -Errno.EINVAL]);
      expect(client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out.ctx_queue_full_drop_cnt).toBe(0n);
    });

    it('rejects requests to the firmware that the driver does not know', () => {
      const request = { op: HL_INFO_OP.FW_GENERIC_REQ, return_size: 8, fw_sub_opcode: FIRMWARE_REQUESTS[asic] };
      expect(fixture.client.infoRaw(request)).toBe(-Errno.EINVAL);
    });

    it('returns the engine status as text in a bounded buffer', () => {
      const { client } = fixture;
      expect(client.infoRaw({ op: HL_INFO_OP.ENGINE_STATUS, return_size: 1023 })).toBe(-Errno.EINVAL);
      expect(client.infoRaw({ op: HL_INFO_OP.ENGINE_STATUS, return_size: 0x100001 })).toBe(-Errno.EINVAL);
      expect(client.infoRaw({ op: HL_INFO_OP.ENGINE_STATUS, return_size: 1024 })).toBe(0);
      expect(client.block.words[HL_INFO_ARGS.words.user_buffer_actual_size]).toBeGreaterThan(0);
    });

    it('refuses a buffer in which the engine status does not fit', () => {
      const { client, profile } = fixture;
      fixture.mapAll();
      const queues = profile.queues.filter(({ kind, userUsable }) => kind === 'hw' && userUsable);
      requires(queues.length > 30, 'queues for a long text');
      for (const { id } of queues) fixture.run(id, (words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)));
      expect(client.infoRaw({ op: HL_INFO_OP.ENGINE_STATUS, return_size: 1024 })).toBe(-Errno.ENOMEM);
    });

    it('has one event fd per file', () => {
      const { client } = fixture;
      const event = new EventFd();
      const closed = new EventFd();
      const badFd = closed.fd;
      closed.close();
      expect(client.infoRaw({ op: HL_INFO_OP.UNREGISTER_EVENTFD })).toBe(-Errno.EINVAL);
      expect(client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: badFd })).toBe(-Errno.EBADF);
      expect(client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd })).toBe(0);
      expect(client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd })).toBe(-Errno.EINVAL);
      expect(client.infoRaw({ op: HL_INFO_OP.GET_EVENTS, return_size: 4 })).toBe(-Errno.EINVAL);
      expect(client.infoRaw({ op: HL_INFO_OP.GET_EVENTS, return_size: 8 })).toBe(0);
      expect(client.answer.words[0]).toBe(0);
      expect(client.infoRaw({ op: HL_INFO_OP.UNREGISTER_EVENTFD })).toBe(0);
      expect(client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd })).toBe(0);
      event.close();
    });

    it('refuses a descriptor that is not an event fd', () => {
      const [reading, writing] = pipe2();
      const values = { op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: reading };
      expect(fixture.client.infoRaw(values)).toBe(-Errno.EINVAL);
      close(reading);
      close(writing);
    });
  });
}
