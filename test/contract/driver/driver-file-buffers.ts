/** Contract cases: CB, TS_ALLOC, MAP_BLOCK and mmap. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { Errno, openFileDescriptors } from '../../../src/sys/index.ts';
import {
  type AsicName,
  HandleType,
  HL_CB_FLAGS,
  HL_CB_OP,
  HL_MAX_CB_SIZE,
  HL_MEM_OP,
  packHandle,
  TS_MAX_ELEMENTS_NUM,
  unpackHandle,
} from '../../../src/uapi/index.ts';
import { timeLimit } from '../../fixtures/extent.ts';
import { requires } from '../../fixtures/requires.ts';
import { errnoOf } from './driver-file-open.ts';
import { DriverFixture } from './driver-fixture.ts';

const PAGE = 4096;
/** Buffers of a program that submits from many queues: more than a server may have descriptors. Device nodes, where a call takes longer, give fewer. */
const BUFFERS = 32_768;
const BUFFERS_OF_NODE = 4096;

export function bufferCases(asic: AsicName, makeNode: () => DriverNode): void {
  describe('CB', () => {
    const fixture = new DriverFixture(asic, makeNode);

    it('gives handles of the type of command buffers, smallest id first', () => {
      const { client } = fixture;
      const [one, two] = [client.createCommandBuffer(PAGE).out, client.createCommandBuffer(PAGE).out];
      expect(unpackHandle(one)).toEqual({ type: HandleType.CB, id: 1n });
      expect(unpackHandle(two)).toEqual({ type: HandleType.CB, id: 2n });
      expect(client.destroyCommandBuffer(one)).toBe(0);
      expect(client.createCommandBuffer(PAGE).out).toBe(one);
    });

    it('gives thousands at the same time, for no descriptors, and takes them back in any order', {
      timeout: timeLimit(BUFFERS / 10),
    }, () => {
      const { client } = fixture;
      const count = fixture.isDeviceNode ? BUFFERS_OF_NODE : BUFFERS;
      // The context has one descriptor for all of its buffers.
      const first = client.createCommandBuffer(PAGE).out;
      const before = openFileDescriptors();
      const handles = Array.from({ length: count - 1 }, () => client.createCommandBuffer(PAGE).out);
      expect(openFileDescriptors()).toBe(before);
      expect(new Set([first, ...handles]).size).toBe(count);
      const last = handles.at(-1)!;
      expect(unpackHandle(last)).toEqual({ type: HandleType.CB, id: BigInt(count) });
      const mapping = client.file.mmap(PAGE, last);
      new Uint8Array(mapping.buffer).fill(7);
      mapping.close();
      for (const handle of [last, first]) expect(client.destroyCommandBuffer(handle)).toBe(0);
      expect(client.createCommandBuffer(PAGE).out).toBe(first);
      expect(client.createCommandBuffer(PAGE).out).toBe(last);
      // Pages of an earlier buffer are zeroed.
      const again = client.file.mmap(PAGE, last);
      expect(new Uint8Array(again.buffer)).toEqual(new Uint8Array(PAGE));
      again.close();
    });

    it('bounds the size and answers 0 on errors', () => {
      const { client } = fixture;
      expect(client.createCommandBuffer(HL_MAX_CB_SIZE).result).toBe(0);
      expect(client.createCommandBuffer(HL_MAX_CB_SIZE + 1)).toEqual({ result: -Errno.EINVAL, out: 0n });
      expect(client.commandBuffer({ op: 3 }).result).toBe(-Errno.EINVAL);
    });

    it('destroys once', () => {
      const { client } = fixture;
      const { out } = client.createCommandBuffer(PAGE);
      expect(client.destroyCommandBuffer(out)).toBe(0);
      expect(client.destroyCommandBuffer(out)).toBe(-Errno.EINVAL);
      expect(client.destroyCommandBuffer(0n)).toBe(-Errno.EINVAL);
      expect(client.destroyCommandBuffer(packHandle(HandleType.TS, 1))).toBe(-Errno.EINVAL);
      expect(client.commandBuffer({ op: HL_CB_OP.INFO, cb_handle: out }).result).toBe(-Errno.EINVAL);
    });

    it('reports the use count and the device address', () => {
      const { client } = fixture;
      const { out } = client.createCommandBuffer(PAGE);
      expect(client.commandBuffer({ op: HL_CB_OP.INFO, cb_handle: out })).toMatchObject({
        result: 0,
        out: { usage_cnt: 0 },
      });
      const flags = HL_CB_FLAGS.GET_DEVICE_VA;
      expect(client.commandBuffer({ op: HL_CB_OP.INFO, cb_handle: out, flags }).result).toBe(-Errno.EINVAL);
    });

    it('ignores the type in the handles of ioctls', () => {
      const { client } = fixture;
      const { id } = unpackHandle(client.createCommandBuffer(PAGE).out);
      expect(client.destroyCommandBuffer(packHandle(HandleType.HW_BLOCK, Number(id)))).toBe(0);
    });

    it('maps a buffer for the card if the ASIC supports it', () => {
      const { client, profile } = fixture;
      const { result, out } = client.createCommandBuffer(77, HL_CB_FLAGS.MAP);
      if (!profile.capabilities.mappedKernelCb) {
        expect({ result, out }).toEqual({ result: -Errno.ENOMEM, out: 0n });
        return;
      }
      expect(result).toBe(0);
      const flags = HL_CB_FLAGS.GET_DEVICE_VA;
      const info = client.commandBuffer({ op: HL_CB_OP.INFO, cb_handle: out, flags });
      expect(info.out.device_va).toBeGreaterThanOrEqual(profile.va.host.start);
      expect(client.destroyCommandBuffer(out)).toBe(0);
    });

    it('keeps the device address of a destroyed buffer until it is unmapped', () => {
      const { client, profile } = fixture;
      requires(profile.capabilities.mappedKernelCb, 'device addresses of command buffers');
      fixture.mapAll();
      const { out } = client.createCommandBuffer(4096, HL_CB_FLAGS.MAP);
      const mapping = client.file.mmap(4096, out);
      expect(client.destroyCommandBuffer(out)).toBe(0);
      const query = { op: HL_CB_OP.INFO, cb_handle: out, flags: HL_CB_FLAGS.GET_DEVICE_VA };
      const { device_va } = client.commandBuffer(query).out;
      fixture.host.words[0] = 42;
      const device = fixture.deviceMemory();
      fixture.copy(fixture.hostVa, device, 4);
      fixture.copy(device, device_va, 4);
      expect(new Uint32Array(mapping.buffer)[0]).toBe(42);
      mapping.close();
      const next = client.createCommandBuffer(4096, HL_CB_FLAGS.MAP).out;
      expect(client.commandBuffer({ ...query, cb_handle: next }).out.device_va).toBe(device_va);
    });
  });

  describe('mmap', () => {
    const fixture = new DriverFixture(asic, makeNode);

    it('requires the whole buffer in pages, once at a time', () => {
      const { client } = fixture;
      const { out } = client.createCommandBuffer(77);
      expect(errnoOf(() => client.file.mmap(2 * PAGE, out))).toBe(Errno.EINVAL);
      const mapping = client.file.mmap(77, out);
      expect(errnoOf(() => client.file.mmap(PAGE, out))).toBe(Errno.EINVAL);
      const bytes = new Uint8Array(mapping.buffer);
      expect(bytes.every((byte) => byte === 0)).toBe(true);
      bytes[5] = 42;
      mapping.close();
      mapping.close();
      const again = client.file.mmap(PAGE, out);
      expect(new Uint8Array(again.buffer)[5]).toBe(42);
      again.close();
    });

    it('refuses unknown handles and types', () => {
      const { client } = fixture;
      const unknown = [
        0n,
        packHandle(HandleType.CB, 9),
        packHandle(HandleType.TS, 1),
        packHandle(HandleType.HW_BLOCK, 9999),
      ];
      for (const offset of unknown) expect(errnoOf(() => client.file.mmap(PAGE, offset))).toBe(Errno.EINVAL);
    });

    it('keeps a destroyed buffer while it is mapped', () => {
      const { client } = fixture;
      const { out } = client.createCommandBuffer(PAGE);
      const mapping = client.file.mmap(PAGE, out);
      const bytes = new Uint8Array(mapping.buffer);
      expect(client.destroyCommandBuffer(out)).toBe(0);
      expect(client.destroyCommandBuffer(out)).toBe(-Errno.EINVAL);
      bytes[0] = 7;
      expect(bytes[0]).toBe(7);
      mapping.close();
      expect(errnoOf(() => client.file.mmap(PAGE, out))).toBe(Errno.EINVAL);
    });

    it('maps buffers of timestamps', () => {
      const { client } = fixture;
      const { result, out } = client.memory({ op: HL_MEM_OP.TS_ALLOC, num_of_elements: 600 });
      expect(result).toBe(0);
      expect(unpackHandle(out.handle).type).toBe(fixture.isDeviceNode ? 0x6 : HandleType.TS);
      const mapping = client.file.mmap(600 * 8, out.handle);
      expect(mapping.byteLength).toBe(2 * PAGE);
      mapping.close();
      const tooMany = { op: HL_MEM_OP.TS_ALLOC, num_of_elements: TS_MAX_ELEMENTS_NUM + 1 };
      expect(client.memory(tooMany).result).toBe(-Errno.EINVAL);
      expect(client.memory({ op: HL_MEM_OP.TS_ALLOC, num_of_elements: 0 }).result).toBe(-Errno.ENOMEM);
    });

    it('maps whole blocks of registers if the ASIC has them', () => {
      const { client, profile } = fixture;
      const block = profile.userBlocks[0];
      const address = block?.address ?? profile.cfg.start;
      const { result, out } = client.memory({ op: HL_MEM_OP.MAP_BLOCK, map_block_block_addr: address });
      if (block === undefined) {
        expect(result).toBe(-Errno.EPERM);
        return;
      }
      expect({ result, size: out.block_size }).toEqual({ result: 0, size: block.size });
      expect(errnoOf(() => client.file.mmap(PAGE, out.block_handle))).toBe(Errno.EINVAL);
      client.file.mmap(block.size, out.block_handle).close();
      const other = { op: HL_MEM_OP.MAP_BLOCK, map_block_block_addr: address + 4096n };
      expect(client.memory(other).result).toBe(-Errno.EINVAL);
    });
  });
}
