/** The close of a gaudi3 file whose context is still held by mappings or dma-bufs (hl_device_release of the vendor's driver). */

import { afterEach, describe, expect, it } from 'vitest';
import { DriverClient } from '../../../test/contract/driver/driver-client.ts';
import { EmulatedCard } from '../../../test/contract/driver/emulated-card.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import type { DriverFile } from '../../driver/port.ts';
import { close, Errno, isSyscallError } from '../../sys/index.ts';
import {
  HL_DEVICE_STATUS,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_OP,
  HL_INFO_RESET_COUNT,
  HL_MEM_OP,
  HL_OPEN_STATS_INFO,
} from '../../uapi/index.ts';

expectNoLeaks();

const BLOCK = 'HD1_SYNC_MNGR_GLBL';

let card: EmulatedCard;
let control: DriverClient;
afterEach(() => {
  control.close();
  card.close();
});

function open(asic: 'gaudi2' | 'gaudi3' = 'gaudi3') {
  card = new EmulatedCard({ asic });
  control = new DriverClient(card.node.openControl(0));
  return card.client;
}

/** Status, the three flags of OPEN_STATS, and the number of hard resets. */
function state() {
  const { status } = control.info(HL_INFO_OP.DEVICE_STATUS, HL_INFO_DEVICE_STATUS).out;
  const stats = control.info(HL_INFO_OP.OPEN_STATS, HL_OPEN_STATS_INFO).out;
  const { hard_reset_cnt } = control.info(HL_INFO_OP.RESET_COUNT, HL_INFO_RESET_COUNT).out;
  const flags = [stats.is_compute_ctx_active, stats.compute_ctx_in_release, stats.compute_ctx_has_mapped_resources];
  return { status, flags, hard_reset_cnt };
}

function openErrno(): number {
  try {
    card.node.open(0).close();
    return 0;
  } catch (error) {
    if (isSyscallError(error)) return error.errno;
    throw error;
  }
}

function blockOf(client: DriverClient, name = BLOCK) {
  const { address } = card.node.config.profile.userBlocks.find((block) => block.name === name)!;
  const { result, out } = client.memory({ op: HL_MEM_OP.MAP_BLOCK, map_block_block_addr: address });
  expect(result).toBe(0);
  return { handle: out.block_handle, size: out.block_size };
}

/** What holds a context, and how it is released. */
type Hold = (client: DriverClient, file: DriverFile) => () => void;

const HOLDS: readonly (readonly [string, Hold])[] = [
  [
    'a mapped block',
    (client, file) => {
      const { handle, size } = blockOf(client);
      const mapping = file.mmap(size, handle);
      return () => mapping.close();
    },
  ],
  [
    'a block mapped for exact accesses',
    (client, file) => {
      const { handle, size } = blockOf(client, 'D0_SPDMA0_CH0_A');
      const mapping = file.mapRegisters(size, handle);
      return () => mapping.close();
    },
  ],
  [
    'a mapped command buffer',
    (client, file) => {
      const mapping = file.mmap(4096, client.createCommandBuffer(4096).out);
      return () => mapping.close();
    },
  ],
  [
    'a mapped timestamp buffer',
    (client, file) => {
      const { handle } = client.memory({ op: HL_MEM_OP.TS_ALLOC, num_of_elements: 8 }).out;
      const mapping = file.mmap(4096, handle);
      return () => mapping.close();
    },
  ],
  [
    'a live dma-buf',
    (client) => {
      const { out: fd } = client.exportDmabuf(client.mapDevice(client.allocate(4096).out).out, 4096);
      return () => close(fd);
    },
  ],
];

describe.each(HOLDS)('a context held by %s', (_what, hold) => {
  it('stays after the close, and the card is reset after its end', () => {
    const client = open();
    const release = hold(client, client.file);
    expect(state()).toEqual({ status: HL_DEVICE_STATUS.OPERATIONAL, flags: [1, 0, 1], hard_reset_cnt: 0 });
    client.file.close();
    expect(state()).toEqual({ status: HL_DEVICE_STATUS.IN_RESET, flags: [1, 1, 1], hard_reset_cnt: 0 });
    expect(openErrno()).toBe(Errno.EAGAIN);
    release();
    expect(state()).toEqual({ status: HL_DEVICE_STATUS.OPERATIONAL, flags: [0, 0, 0], hard_reset_cnt: 1 });
    expect(openErrno()).toBe(0);
    expect(state().hard_reset_cnt).toBe(1);
  });

  it('is closed with its node', () => {
    const client = open();
    const release = hold(client, client.file);
    client.file.close();
    card.node.close();
    expect(card.node.card(0).context).toBeUndefined();
    release();
  });

  it('is not held after the end of the hold', () => {
    const client = open();
    hold(client, client.file)();
    expect(state().flags).toEqual([1, 0, 0]);
    client.file.close();
    expect(state()).toEqual({ status: HL_DEVICE_STATUS.OPERATIONAL, flags: [0, 0, 0], hard_reset_cnt: 0 });
  });
});

describe('a held context', () => {
  it('is released without a call of a program, within 10 ms', () => {
    const client = open();
    const [, hold] = HOLDS[4]!;
    const release = hold(client, client.file);
    client.file.close();
    release();
    const { status } = card.node.card(0);
    card.clock.advance(10_000_000);
    expect([status, card.node.card(0).status]).toEqual([HL_DEVICE_STATUS.IN_RESET, HL_DEVICE_STATUS.OPERATIONAL]);
  });

  it('waits for the last of its mappings, of which a block can have several', () => {
    const client = open();
    const { handle, size } = blockOf(client);
    const mappings = [client.file.mmap(size, handle), client.file.mmap(size, handle)];
    client.file.close();
    mappings[0]!.close();
    mappings[0]!.close();
    expect(openErrno()).toBe(Errno.EAGAIN);
    mappings[1]!.close();
    expect(openErrno()).toBe(0);
  });

  it('of an unplugged card ends with its node', () => {
    const client = open();
    const { handle, size } = blockOf(client);
    const mapping = client.file.mmap(size, handle);
    client.file.close();
    card.node.inject(0, { kind: 'unplug' });
    expect(card.node.card(0).context).not.toBeUndefined();
    card.node.close();
    mapping.close();
  });

  it('exists on gaudi3 only: on gaudi2 a mapped buffer resets the card at once, and a mapped block does not', () => {
    let client = open('gaudi2');
    const block = client.memory({
      op: HL_MEM_OP.MAP_BLOCK,
      map_block_block_addr: card.node.config.profile.userBlocks[0]!.address,
    });
    client.file.mmap(block.out.block_size, block.out.block_handle);
    client.close();
    expect(state()).toEqual({ status: HL_DEVICE_STATUS.OPERATIONAL, flags: [0, 0, 0], hard_reset_cnt: 0 });
    card.reopen();
    client = card.client;
    const mapping = client.file.mmap(4096, client.createCommandBuffer(4096).out);
    client.file.close();
    expect(state()).toEqual({ status: HL_DEVICE_STATUS.OPERATIONAL, flags: [0, 0, 0], hard_reset_cnt: 1 });
    mapping.close();
  });
});

describe('a block of registers', () => {
  it('is mapped as a whole, by its exact address', () => {
    const client = open();
    const { profile } = card.node.config;
    for (const { address, size } of profile.userBlocks) {
      const { result, out } = client.memory({ op: HL_MEM_OP.MAP_BLOCK, map_block_block_addr: address });
      expect([result, out.block_size]).toEqual([0, size]);
    }
    const map = (address: bigint) => client.memory({ op: HL_MEM_OP.MAP_BLOCK, map_block_block_addr: address }).result;
    const { start } = profile.cfg;
    // Inside a block, block B of a channel, the channel of the driver, its sync objects, the doorbell.
    for (const offset of [0xc540004, 0xc546000, 0xcd65000, 0xe380000, 0xe3a0000, 0xc417000]) {
      expect(map(start + BigInt(offset))).toBe(-Errno.EINVAL);
    }
    const { handle, size } = blockOf(client, 'HD0_SYNC_MNGR_OBJS_1');
    expect(size).toBe(0xf000);
    for (const bytes of [0x1000, size - 0x1000, size + 0x1000]) {
      expect(() => client.file.mmap(bytes, handle)).toThrow(expect.objectContaining({ errno: Errno.EINVAL }));
    }
    client.file.mmap(size, handle).close();
  });
});
