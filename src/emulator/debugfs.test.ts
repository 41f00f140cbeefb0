/** The debugfs files of an emulated card, by name. */

import { afterEach, describe, expect, it } from 'vitest';
import { EmulatedCard } from '../../test/contract/driver/emulated-card.ts';
import { Errno } from '../sys/index.ts';
import { fenceCfg, HL_CS_FLAGS, HL_INFO_OP, PacketOpcode, packetCtl, writeFence } from '../uapi/index.ts';
import { EVENT_INJECTION } from './driver/base/firmware.ts';
import type { EmulatedNodeOptions } from './index.ts';

const MIB = 2 ** 20;
const SOB_VALUE = 0x1234n;
/** HL_DEVICE_STATUS. */
const [OPERATIONAL, IN_RESET, MALFUNCTION] = [0, 1, 2];

/** A card and its debugfs files. */
class DebugCard extends EmulatedCard {
  read(name: string): string | Uint8Array | number {
    return this.node.debugFs(0).read(name);
  }

  write(name: string, text: string): number {
    return this.node.debugFs(0).write(name, text);
  }

  /** Submits a command buffer of the driver that blocks at a fence. */
  blocked(queue = 0): bigint {
    if (this.node.config.profile.name === 'gaudi2') return this.block(MIB, queue);
    const handle = this.client.createCommandBuffer(4096).out;
    const mapping = this.client.file.mmap(4096, handle);
    writeFence(new Uint32Array(mapping.buffer), 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
    mapping.close();
    const { result, out } = this.client.submit([{ queue, cb: handle, byteLength: 8, flags: 0 }]);
    expect(result).toBe(0);
    return out.seq;
  }

  /** Reads at an address. */
  at(address: bigint, name = 'data32'): string | Uint8Array | number {
    expect(this.write('addr', `0x${address.toString(16)}\n`)).toBeGreaterThan(0);
    return this.read(name);
  }

  /** Writes at an address. */
  put(address: bigint, text: string, name = 'data32'): number {
    expect(this.write('addr', `0x${address.toString(16)}\n`)).toBeGreaterThan(0);
    return this.write(name, text);
  }
}

describe.each(['gaudi', 'gaudi2'] as const)('the debugfs files of %s', (asic) => {
  let card: DebugCard;
  afterEach(() => card.close());

  function open(options: EmulatedNodeOptions = {}): DebugCard {
    card = new DebugCard({ asic, ...options });
    return card;
  }

  it('data32 and data64 access SRAM, device memory and registers', () => {
    const { profile } = open().node.config;
    expect(card.read('addr')).toBe('0x0000000000000000\n');
    const sram = profile.sram.start;
    expect(card.put(sram, '0x8877665544332211\n', 'data64')).toBe(19);
    expect(card.at(sram, 'data64')).toBe('0x8877665544332211\n');
    expect(card.at(sram + 4n)).toBe('0x88776655\n');
    expect(card.read('addr')).toBe(`0x${(sram + 4n).toString(16).padStart(16, '0')}\n`);
    const dram = profile.dram.base + 64n;
    expect([card.put(dram, 'abc'), card.at(dram)]).toEqual([3, '0x00000abc\n']);
    // As the C library writes them, with the NUL behind the text.
    expect(card.write('addr', `0x${(dram + 4n).toString(16)}\0`)).toBeGreaterThan(0);
    expect([card.write('data32', '0xdef\0'), card.read('data32')]).toEqual([6, '0x00000def\n']);
    const sob = profile.cfg.start + BigInt(profile.sync.managers[0]!.sobObj);
    expect(card.put(sob, SOB_VALUE.toString(16))).toBe(4);
    expect(card.at(sob)).toBe('0x00001234\n');
  });

  it('rejects addresses without memory and strings that are not numbers', () => {
    open();
    expect(card.at(0x10n << 56n)).toBe(-Errno.EINVAL);
    expect(card.put(0x10n << 56n, '1')).toBe(-Errno.EINVAL);
    expect(card.put(card.node.config.profile.sram.start, 'xyz')).toBe(-Errno.EINVAL);
    expect(card.write('data32', '0x100000000')).toBe(-Errno.ERANGE);
    expect(card.write('addr', '')).toBe(-Errno.EINVAL);
    expect([card.read('nothing'), card.write('nothing', '1')]).toEqual([-Errno.ENOENT, -Errno.ENOENT]);
    expect([card.read('dma_size'), card.write('data_dma', '1')]).toEqual([-Errno.EINVAL, -Errno.EINVAL]);
    expect(card.write('clk_gate', 'anything')).toBe(8);
  });

  it('dma_size copies device memory for data_dma', () => {
    const { sram } = open().node.config.profile;
    card.put(sram.start, '0x0807060504030201', 'data64');
    card.write('addr', `0x${sram.start.toString(16)}`);
    expect(card.write('dma_size', '8')).toBe(1);
    expect(card.read('data_dma')).toEqual(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8));
    expect(card.write('dma_size', '0')).toBe(-Errno.EINVAL);
    expect(card.write('dma_size', '8000001')).toBe(-Errno.EINVAL);
    card.write('addr', `0x${(sram.end - 4n).toString(16)}`);
    expect(card.write('dma_size', '8')).toBe(-Errno.EINVAL);
  });

  it('dma_size needs an engine: an idle one on gaudi, an open file on gaudi2', () => {
    const { sram } = open().node.config.profile;
    card.write('addr', `0x${sram.start.toString(16)}`);
    for (const queue of [0, 4]) {
      expect(card.write('dma_size', '8')).toBe(1);
      card.blocked(queue);
    }
    expect(card.write('dma_size', '8')).toBe(asic === 'gaudi' ? -Errno.EIO : 1);
    card.client.close();
    expect(card.write('dma_size', '8')).toBe(asic === 'gaudi' ? 1 : -Errno.EIO);
  });

  it('a write to a fence continues a queue', () => {
    const { profile } = open().node.config;
    const seq = card.blocked();
    expect(card.client.wait(seq).out.status).toBe(1);
    expect(card.put(profile.cfg.start + BigInt(profile.fences[0]!.fence0), '1')).toBe(1);
    expect(card.client.wait(seq).out.status).toBe(0);
  });

  it('timeout_locked and skip_reset_on_timeout apply to submissions', () => {
    open({ csTimeoutSeconds: 30 });
    expect(card.read('timeout_locked')).toBe('30\n');
    expect([card.write('timeout_locked', '2\n'), card.write('skip_reset_on_timeout', '1')]).toEqual([2, 1]);
    expect([card.read('timeout_locked'), card.read('skip_reset_on_timeout')]).toEqual(['2\n', '0x01\n']);
    // The setting at the submission counts.
    card.blocked();
    card.write('skip_reset_on_timeout', '0');
    card.clock.advance(2e9);
    expect([card.status, card.hardResets]).toEqual([OPERATIONAL, 0]);
    card.client.close();
    card.reopen();
    card.blocked();
    card.clock.advance(2e9);
    // The other one is that of the close with a submission in flight.
    expect([card.status, card.hardResets]).toEqual([IN_RESET, 2]);
    expect(card.read('data32')).toBe('');
    card.write('timeout_locked', '0');
    expect(card.read('timeout_locked')).toBe('0\n');
    // Without a default, a time-out of the submission has no effect either.
    card.client.close();
    card.reopen();
    card.run((words) => writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1)), [], {
      cs_flags: HL_CS_FLAGS.CUSTOM_TIMEOUT,
      timeout: 2,
    });
    card.clock.advance(60e9);
    expect([card.status, card.hardResets]).toEqual([OPERATIONAL, 2]);
  });

  it('what is in flight continues when a card is enabled again', () => {
    open();
    const seq = card.blocked();
    card.write('device', 'disable');
    card.write('device', 'enable');
    expect(card.client.wait(seq)).toMatchObject({ result: 0, out: { status: 1 } });
  });

  it('command_buffers lists the buffers, engines the queues in use', () => {
    open();
    const before = String(card.read('command_buffers'));
    expect(card.client.createCommandBuffer(4096).result).toBe(0);
    expect(String(card.read('command_buffers'))).toContain('0x00001000');
    expect(before).not.toContain('0x00001000');
    card.blocked();
    expect(String(card.read('engines'))).toContain('is_idle');
  });

  it('stop_on_err resets gaudi, and gaudi2 does not have it', () => {
    open();
    const isGaudi = asic === 'gaudi';
    expect(card.read('stop_on_err')).toBe(isGaudi ? '1\n' : -Errno.EOPNOTSUPP);
    expect(card.write('stop_on_err', '1')).toBe(isGaudi ? 1 : -Errno.EOPNOTSUPP);
    expect(card.hardResets).toBe(isGaudi ? 1 : 0);
  });
});

describe.each(['gaudi', 'gaudi2', 'gaudi3'] as const)('errors that programs inject into %s by debugfs', (asic) => {
  let card: DebugCard;
  afterEach(() => card.close());
  const injection = EVENT_INJECTION[asic];

  it('the file device changes the state of the card', () => {
    card = new DebugCard({ asic });
    expect(card.write('device', 'nonsense')).toBe(-Errno.EINVAL);
    expect([card.write('device', 'disable'), card.status]).toEqual([7, MALFUNCTION]);
    expect([card.write('device', 'enable'), card.status]).toEqual([6, OPERATIONAL]);
    expect([card.write('device', 'cpu_timeout'), card.status]).toEqual([11, OPERATIONAL]);
    card.clock.advance(5e9);
    expect([card.status, card.hardResets]).toEqual([IN_RESET, 1]);
  });

  if (injection.reason === undefined) {
    it('an ECC error that is corrected is counted; one that is not resets the card', () => {
      card = new DebugCard({ asic });
      const register = card.node.config.profile.cfg.start + injection.register;
      card.put(register, '0x26');
      const { eventCounts, eventTotals } = card.node.card(0);
      expect([eventCounts.get(38), card.status, card.hardResets]).toEqual([1, OPERATIONAL, 0]);
      card.put(register, '0x2e');
      expect([eventTotals.get(46), card.status, card.hardResets]).toEqual([1, IN_RESET, 1]);
      // A hard reset clears the counts, but not the totals.
      const count = (op: number): number => {
        expect(card.client.infoRaw({ op, return_size: 4096 })).toBe(0);
        return card.client.answer.words[38]!;
      };
      expect([count(HL_INFO_OP.HW_EVENTS), count(HL_INFO_OP.HW_EVENTS_AGGREGATE)]).toEqual([0, 1]);
    });
  } else {
    it(`the register of gaudi raises no event: ${injection.reason}`, () => {
      card = new DebugCard({ asic });
      const { cfg } = card.node.config.profile;
      const result = card.put(cfg.start + EVENT_INJECTION.gaudi.register!, '0x2e');
      expect([result, [...card.node.card(0).eventTotals]]).toEqual([4, []]);
      expect([card.status, card.hardResets]).toEqual([OPERATIONAL, 0]);
    });
  }
});
