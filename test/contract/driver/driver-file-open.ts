/** Contract cases: nodes, files, ioctl framing, debug mode. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { Errno, isSyscallError } from '../../../src/sys/index.ts';
import {
  type AsicName,
  DRM_IOCTLS,
  HABANALABS_IOCTLS,
  HL_CB_OP,
  HL_DEBUG_ARGS,
  HL_DEBUG_OP,
  HL_INFO_ARGS,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_OP,
  HL_INFO_RESET_COUNT,
  HL_OPEN_STATS_INFO,
  ioctlType,
  iowr,
  PacketOpcode,
  packetCtl,
  writeNop,
} from '../../../src/uapi/index.ts';
import { DriverClient } from './driver-client.ts';
import { DriverFixture, halves } from './driver-fixture.ts';

/** The errno that a call throws. */
export function errnoOf(call: () => unknown): number {
  try {
    call();
  } catch (error) {
    if (isSyscallError(error)) return error.errno;
    throw error;
  }
  return 0;
}

export function openCases(asic: AsicName, makeNode: () => DriverNode): void {
  describe('open', () => {
    const fixture = new DriverFixture(asic, makeNode);

    it('has one compute context: EBUSY until it is closed', () => {
      expect(errnoOf(() => fixture.node.open(0))).toBe(Errno.EBUSY);
      fixture.client.close();
      fixture.open();
    });

    it('refuses an unknown card with ENOENT', () => {
      expect(errnoOf(() => fixture.node.open(99))).toBe(Errno.ENOENT);
      expect(errnoOf(() => fixture.node.openControl(99))).toBe(Errno.ENOENT);
      expect(fixture.node.attribute(99, 'status')).toBeUndefined();
    });

    it('opens the control node any number of times, for INFO only', () => {
      const controls = [0, 1, 2].map(() => new DriverClient(fixture.node.openControl(0)));
      for (const control of controls) {
        expect(control.info(HL_INFO_OP.DEVICE_STATUS, HL_INFO_DEVICE_STATUS)).toEqual({
          result: 0,
          out: { status: 0, pad: 0 },
        });
        expect(control.allocate(4096).result).toBe(-Errno.ENOTTY);
        expect(control.createCommandBuffer(4096).result).toBe(-Errno.ENOTTY);
        expect(control.submit([]).result).toBe(-Errno.ENOTTY);
        expect(control.wait(1n).result).toBe(-Errno.ENOTTY);
        expect(control.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(-Errno.ENOTTY);
        for (const op of [HL_INFO_OP.REGISTER_EVENTFD, HL_INFO_OP.UNREGISTER_EVENTFD, HL_INFO_OP.GET_EVENTS]) {
          for (const pad of [0, 1]) expect(control.infoRaw({ op, return_size: 8, pad })).toBe(-Errno.EOPNOTSUPP);
        }
        expect(errnoOf(() => control.file.mmap(4096, 0x1000000000001000n))).toBe(Errno.ENODEV);
        control.close();
      }
    });

    it('counts opens, and not the resets at close', () => {
      const before = fixture.client.info(HL_INFO_OP.OPEN_STATS, HL_OPEN_STATS_INFO).out;
      const resets = fixture.client.info(HL_INFO_OP.RESET_COUNT, HL_INFO_RESET_COUNT).out;
      expect(before.is_compute_ctx_active).toBe(1);
      fixture.client.close();
      fixture.open();
      const after = fixture.client.info(HL_INFO_OP.OPEN_STATS, HL_OPEN_STATS_INFO).out;
      expect(after.open_counter).toBe(before.open_counter + 1n);
      const resetsAfter = fixture.client.info(HL_INFO_OP.RESET_COUNT, HL_INFO_RESET_COUNT).out;
      expect(resetsAfter).toEqual(resets);
    });

    it('answers EBADF after close, and closes twice', () => {
      const { file } = fixture.client;
      file.close();
      file.close();
      for (const request of Object.values(file.numbers)) {
        expect(file.ioctl(request, fixture.client.block)).toBe(-Errno.EBADF);
      }
      expect(errnoOf(() => file.mmap(4096, 0x1000000000001000n))).toBe(Errno.EBADF);
    });

    it('describes the cards', () => {
      const cards = fixture.node.cards();
      expect(cards.map((card) => card.minor)).toEqual(cards.map((_, index) => index));
      expect(fixture.node.attribute(0, 'pci_addr')).toBe(cards[0]!.busId);
      expect(cards[0]!.busId).toMatch(/^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$/);
      expect(fixture.hw.module_id).toBe(cards[0]!.moduleId);
      expect(fixture.node.attribute(0, 'nonsense')).toBeUndefined();
    });
  });

  describe('ioctl framing', () => {
    const fixture = new DriverFixture(asic, makeNode);

    it('accepts both families of request numbers', () => {
      for (const numbers of [DRM_IOCTLS, HABANALABS_IOCTLS]) {
        const { block, answer, file } = fixture.client;
        const values = { op: HL_INFO_OP.DEVICE_STATUS, return_size: 8, return_pointer: BigInt(answer.address) };
        HL_INFO_ARGS.encode(values, block.view);
        expect(file.ioctl(numbers.INFO, block)).toBe(0);
      }
    });

    it('has zeros in place of arguments that the request number leaves out, and keeps the memory behind them', () => {
      const { client } = fixture;
      const { file, block } = client;
      fixture.mapAll();
      writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));
      const { seq } = fixture.submitCommands(8).out;
      const { out } = client.createCommandBuffer(4096);
      const cut = (request: number, byteLength: number) => iowr(ioctlType(request), request & 0xff, byteLength);
      const run = (request: number, byteLength: number, ...given: readonly number[]) => {
        block.words.fill(0xffff_ffff, 0, 16);
        block.words.set(given);
        const result = file.ioctl(cut(request, byteLength), block);
        return [result, ...block.words.subarray(0, 6)];
      };
      const rest = 0xffff_ffff;
      // WAIT_CS without a time-out and flags, CB INFO without GET_DEVICE_VA, INFO without padding.
      expect(run(file.numbers.WAIT_CS, 8, ...halves(seq))).toEqual([0, 0, 0, rest, rest, rest, rest]);
      const query = [...halves(out), HL_CB_OP.INFO];
      expect(run(file.numbers.CB, 12, ...query)).toEqual([0, 0, 0, HL_CB_OP.INFO, rest, rest, rest]);
      const status = [...halves(BigInt(client.answer.address)), 8, HL_INFO_OP.DEVICE_STATUS];
      expect(run(file.numbers.INFO, 16, ...status)).toEqual([0, ...status, rest, rest]);
    });

    it('refuses numbers that the driver does not have', () => {
      const { block, file } = fixture.client;
      expect(file.ioctl(iowr(0x64, 0x46, 32), block)).toBe(-Errno.EINVAL);
      expect(file.ioctl(iowr(0x64, 0x3f, 24), block)).toBe(-Errno.EINVAL);
      expect(file.ioctl(iowr(0x48, 0, 24), block)).toBe(-Errno.ENOTTY);
      expect(file.ioctl(iowr(0x48, 7, 24), block)).toBe(-Errno.ENOTTY);
      expect(file.ioctl(iowr(0x55, 1, 24), block)).toBe(-Errno.ENOTTY);
    });

    it('refuses all requests but INFO on the control node', () => {
      const control = new DriverClient(fixture.node.openControl(0));
      for (const number of [0x3f, 0x41, 0x46]) {
        expect(control.file.ioctl(iowr(0x64, number, 24), control.block)).toBe(-Errno.ENOTTY);
      }
      control.close();
    });
  });

  describe('DEBUG', () => {
    const fixture = new DriverFixture(asic, makeNode);

    it('needs debug mode, which is switched once', () => {
      const { client } = fixture;
      expect(client.debug({ op: HL_DEBUG_OP.SPMU })).toBe(-Errno.EFAULT);
      expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 0 })).toBe(-Errno.EFAULT);
      expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(0);
      expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(-Errno.EFAULT);
      expect(client.debug({ op: HL_DEBUG_OP.TIMESTAMP })).toBe(0);
      expect(client.debug({ op: HL_DEBUG_OP.BMON, input_ptr: 16n, input_size: 80 })).toBe(-Errno.EFAULT);
      expect(client.debug({ op: 9 })).toBe(-Errno.EINVAL);
      fixture.client.close();
      fixture.open();
      expect(fixture.client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(0);
      expect(fixture.client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 0 })).toBe(0);
    });

    it('refuses trace units that the generation does not have', () => {
      const { client } = fixture;
      expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(0);
      const units = asic === 'gaudi' ? [48, 46, 76, 121] : [141, 139, 141, 385];
      for (const [index, op] of [HL_DEBUG_OP.ETF, HL_DEBUG_OP.STM, HL_DEBUG_OP.FUNNEL, HL_DEBUG_OP.BMON].entries()) {
        expect(client.debug({ op, reg_idx: units[index]! - 1 }), `op ${op}`).toBe(0);
        expect(client.debug({ op, reg_idx: units[index]! }), `op ${op}`).toBe(-Errno.EINVAL);
      }
      const spmus = asic === 'gaudi' ? 40 : 137;
      const output = { output_ptr: BigInt(client.dataAddress), output_size: 24 };
      expect(client.debug({ op: HL_DEBUG_OP.SPMU, reg_idx: spmus - 1, ...output })).toBe(0);
      expect(client.debug({ op: HL_DEBUG_OP.SPMU, reg_idx: spmus, ...output })).toBe(-Errno.EINVAL);
    });

    it('refuses to enable a trace unit without its parameters', () => {
      const { client } = fixture;
      const buffer = fixture.mapAll();
      expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(0);
      const { ETR, ETF, STM, BMON, SPMU, FUNNEL } = HL_DEBUG_OP;
      for (const op of [ETR, ETF, STM, BMON, SPMU]) {
        expect(client.debug({ op, enable: 1 }), `op ${op}`).toBe(-Errno.EINVAL);
        expect(client.debug({ op, enable: 1, input_ptr: BigInt(client.dataAddress) }), `op ${op}`).toBe(-Errno.EINVAL);
      }
      expect(client.debug({ op: FUNNEL, enable: 1, input_ptr: 16n, input_size: 8 })).toBe(0);
      expect(HL_DEBUG_ARGS.decode(client.block.view).input_size).toBe(0);
      const input = { enable: 1, input_ptr: BigInt(client.dataAddress), input_size: 1000 };
      expect(client.debug({ op: STM, ...input })).toBe(0);
      expect(HL_DEBUG_ARGS.decode(client.block.view).input_size).toBe(24);
      // An ETR needs a buffer. Once it runs, a further request to enable it does nothing.
      client.data.setBigUint64(0, buffer, true);
      expect(client.debug({ op: ETR, ...input })).toBe(-Errno.EINVAL);
      client.data.setBigUint64(8, 4096n, true);
      expect(client.debug({ op: ETR, ...input })).toBe(0);
      expect(client.debug({ op: ETR, enable: 1 })).toBe(0);
      expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 0 })).toBe(0);
      expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(0);
      expect(client.debug({ op: ETR, enable: 1 })).toBe(-Errno.EINVAL);
    });

    it('limits the events of a performance unit and the words of its output', () => {
      const { client } = fixture;
      expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(0);
      const op = HL_DEBUG_OP.SPMU;
      const onGaudi = asic === 'gaudi' ? -Errno.EINVAL : 0;
      const enable = (events: number): number => {
        client.data.setUint32(80, events, true);
        return client.debug({ op, enable: 1, input_ptr: BigInt(client.dataAddress), input_size: 96 });
      };
      expect([2, 3, 6, 7].map(enable)).toEqual([onGaudi, 0, 0, -Errno.EINVAL]);
      const disable = (words: number): number =>
        client.debug({ op, output_ptr: BigInt(client.dataAddress), output_size: words * 8 });
      expect([0, 2, 3, 8, 9].map(disable)).toEqual([onGaudi, onGaudi, 0, 0, -Errno.EINVAL]);
    });

    it('writes as many bytes of output as the caller asks for, after success only', () => {
      const { client } = fixture;
      expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(0);
      const output = { output_ptr: BigInt(client.dataAddress), output_size: 8 };
      client.data.setBigUint64(0, ~0n, true);
      client.data.setBigUint64(8, ~0n, true);
      expect(client.debug({ op: HL_DEBUG_OP.BMON, reg_idx: 1000, ...output })).toBe(-Errno.EINVAL);
      expect(client.data.getBigUint64(0, true)).toBe(2n ** 64n - 1n);
      expect(client.debug({ op: HL_DEBUG_OP.BMON, ...output })).toBe(0);
      expect(client.data.getBigUint64(0, true)).toBe(0n);
      expect(client.data.getBigUint64(8, true)).toBe(2n ** 64n - 1n);
      expect(client.debug({ op: HL_DEBUG_OP.BMON, output_ptr: 16n, output_size: 8 })).toBe(-Errno.EFAULT);
      // More than the kernel allocates.
      expect(client.debug({ op: HL_DEBUG_OP.BMON, output_ptr: 16n, output_size: 2 ** 32 - 1 })).toBe(-Errno.ENOMEM);
    });
  });
}
