/**
 * The debugfs files of a card, by name: modes, contents, and effects of writes.
 *
 * Source: drivers/accel/habanalabs/common/debugfs.c, Linux 6.12: add_files_to_device. There the folder is debugfs/accel/<bus id>; before Linux 6.7 it was
 * debugfs/habanalabs/hl<minor>.
 */

import { allocateScratch, Errno } from '../../sys/index.ts';
import { dmmuRange, HL_DEVICE_STATUS } from '../../uapi/index.ts';
import type { GaudiDevice } from '../device/gaudi-device.ts';
import { Target } from '../device/memory/address-map.ts';
import { fetchBytes, storeBytes } from '../device/memory/memory-access.ts';
import type { PhysicalMemory } from '../device/memory/physical-memory.ts';
import { EVENT_INJECTION } from './base/firmware.ts';
import { parseNumber } from './base/numbers.ts';
import type { Card } from './card.ts';
import { engineStatusText } from './ioctl/info-state.ts';

const U8_MAX = 0xffn;
const U32_MAX = 0xffff_ffffn;
const U64_MAX = 0xffff_ffff_ffff_ffffn;
const NS_PER_S = 1e9;
/** Limit of a read by DMA (SZ_128M). */
const DMA_BYTES_MAX: bigint = 128n * 2n ** 20n;
const LEDS = 3;

interface Node {
  readonly mode: number;
  /** Returns the contents, or a negative errno. */
  readonly read?: () => string | Uint8Array | number;
  /** Returns 0, or a negative errno. */
  readonly write?: (text: string) => number;
}

/** The debugfs files of one card, and their state. */
export class DebugFs {
  readonly #card: Card;
  readonly #window: DeviceWindow;
  readonly #nodes: ReadonlyMap<string, Node>;
  #address = 0n;
  #blob: Uint8Array = new Uint8Array(0);

  constructor(card: Card) {
    this.#card = card;
    this.#window = new DeviceWindow(card.device);
    this.#nodes = new Map(Object.entries({ ...this.#memoryNodes(), ...this.#stateNodes(), ...this.#listNodes() }));
  }

  /** Name and mode of each file. */
  entries(): readonly { readonly name: string; readonly mode: number }[] {
    return [...this.#nodes].map(([name, { mode }]) => ({ name, mode }));
  }

  /**
   * Reads a whole file from its start.
   * @returns its contents; or a negative errno: ENOENT for an unknown name, EINVAL for a write-only file or an address without memory, ...
   */
  read(name: string): string | Uint8Array | number {
    const node = this.#nodes.get(name);
    if (node === undefined) return -Errno.ENOENT;
    return node.read === undefined ? -Errno.EINVAL : node.read();
  }

  /**
   * Writes to a file, in one call.
   * @returns the number of bytes written, or a negative errno: ENOENT for an unknown name, EINVAL for a read-only file or a string that is not a number,
   * ERANGE for a number that is too large, ...
   */
  write(name: string, text: string): number {
    const node = this.#nodes.get(name);
    if (node === undefined) return -Errno.ENOENT;
    const result = node.write === undefined ? -Errno.EINVAL : node.write(text);
    return result < 0 ? result : Buffer.byteLength(text);
  }

  /** Whether the card is in reset: reads then return at once, writes have no effect. */
  get #inReset(): boolean {
    const { status } = this.#card;
    return status === HL_DEVICE_STATUS.IN_RESET || status === HL_DEVICE_STATUS.IN_RESET_AFTER_DEVICE_RELEASE;
  }

  /** Files that access device memory and registers. */
  #memoryNodes(): Readonly<Record<string, Node>> {
    return {
      addr: {
        mode: 0o644,
        read: () => `0x${this.#address.toString(16).padStart(16, '0')}\n`,
        write: (text) =>
          onNumber(parseNumber(text, 0, U64_MAX), (value) => {
            this.#address = value;
          }),
      },
      data32: this.#dataNode(4),
      data64: this.#dataNode(8),
      dma_size: { mode: 0o200, write: (text) => this.#readByDma(text) },
      data_dma: { mode: 0o400, read: () => this.#blob },
    };
  }

  #dataNode(byteLength: 4 | 8): Node {
    return {
      mode: 0o644,
      read: () => {
        if (this.#inReset) return '';
        const value = this.#window.read(this.#address, byteLength);
        return typeof value === 'number' ? value : `0x${value.toString(16).padStart(2 * byteLength, '0')}\n`;
      },
      write: (text) => {
        if (this.#inReset) return 0;
        return onNumber(parseNumber(text, 16, byteLength === 4 ? U32_MAX : U64_MAX), (value) => {
          const result = this.#window.write(this.#address, byteLength, value);
          if (result === 0) this.#afterWrite(Number(value & U32_MAX));
          this.#card.service();
          return result;
        });
      },
    };
  }

  /** Raises an event after a write to the event register of the hardware: programs inject errors in this way. */
  #afterWrite(value: number): void {
    const { register } = EVENT_INJECTION[this.#card.profile.name];
    if (register !== undefined && this.#address === this.#card.profile.cfg.start + register) {
      this.#card.hardwareEvent(value);
    }
  }

  /** Reads device memory by a DMA engine, for data_dma. */
  #readByDma(text: string): number {
    if (this.#inReset) return 0;
    return onNumber(parseNumber(text, 16, U32_MAX), (byteLength) => {
      if (byteLength === 0n || byteLength > DMA_BYTES_MAX || !this.#isInside(byteLength)) return -Errno.EINVAL;
      if (!this.#hasEngine()) return -Errno.EIO;
      const blob = new Uint8Array(Number(byteLength));
      this.#card.waitForEngines();
      if (!this.#window.copy(this.#address, blob)) return -Errno.EIO;
      this.#blob = blob;
      return 0;
    });
  }

  /**
   * Whether an engine can copy: gaudi needs one of its two PCI DMAs idle (gaudi_debugfs_read_dma), gaudi2 the address space of an open file
   * (gaudi2_debugfs_read_dma).
   */
  #hasEngine(): boolean {
    const { device, profile, hasContext } = this.#card;
    if (profile.name !== 'gaudi') return hasContext;
    const busy = [...device.usedStreams()].filter(({ idle }) => !idle).map(({ queueId }) => profile.queues[queueId]!);
    return new Set(busy.filter(({ kind }) => kind === 'external').map(({ engineIndex }) => engineIndex)).size < 2;
  }

  /** Whether a range is within the addresses of device memory or of the SRAM (hl_is_device_internal_memory_va). */
  #isInside(byteLength: bigint): boolean {
    const { profile, device } = this.#card;
    const { dram, sram } = profile;
    const hbmBytes = BigInt(device.hbm.byteLength);
    const ranges = [sram, dmmuRange(dram, hbmBytes) ?? { start: dram.base, end: dram.base + hbmBytes }];
    return ranges.some((range) => this.#address >= range.start && this.#address + byteLength <= range.end);
  }

  /** Files that show and change the state of the driver. */
  #stateNodes(): Readonly<Record<string, Node>> {
    const card = this.#card;
    const led: Node = { mode: 0o200, write: (text) => onNumber(parseNumber(text, 10, U32_MAX), () => {}) };
    return {
      // The driver no longer has clock gating: the file accepts everything.
      clk_gate: { mode: 0o200, read: () => '', write: () => 0 },
      device: { mode: 0o200, read: () => DEVICE_HELP, write: (text) => this.#command(text) },
      stop_on_err: {
        mode: 0o644,
        read: () => (card.profile.name === 'gaudi' ? `${this.#stopOnError}\n` : -Errno.EOPNOTSUPP),
        write: (text) => (card.profile.name === 'gaudi' ? this.#setStopOnError(text) : -Errno.EOPNOTSUPP),
      },
      dump_security_violations: { mode: 0o644, read: () => '' },
      dump_razwi_events: { mode: 0o644, read: () => '' },
      skip_reset_on_timeout: {
        mode: 0o644,
        read: () => `0x0${card.skipResetOnTimeout ? 1 : 0}\n`,
        write: (text) =>
          onNumber(parseNumber(text, 0, U8_MAX), (value) => {
            card.skipResetOnTimeout = value !== 0n;
          }),
      },
      timeout_locked: {
        mode: 0o644,
        read: () => `${card.csTimeoutSeconds === Number.POSITIVE_INFINITY ? 0 : card.csTimeoutSeconds}\n`,
        write: (text) =>
          onNumber(parseNumber(text, 10, U32_MAX), (value) => {
            card.csTimeoutSeconds = value === 0n ? Number.POSITIVE_INFINITY : Number(value);
          }),
      },
      device_release_watchdog_timeout: {
        mode: 0o644,
        read: () => `${card.resets.releaseWatchdogNs / NS_PER_S}\n`,
        write: (text) =>
          onNumber(parseNumber(text, 0, U32_MAX), (value) => {
            card.resets.releaseWatchdogNs = Number(value) * NS_PER_S;
          }),
      },
      ...Object.fromEntries(Array.from({ length: LEDS }, (_, i) => [`led${i}`, led])),
    };
  }

  /** Set by the driver when it probes a card (fixup_device_params, Linux 6.12). */
  #stopOnError = 1;

  #setStopOnError(text: string): number {
    if (this.#inReset) return 0;
    return onNumber(parseNumber(text, 10, U32_MAX), (value) => {
      this.#stopOnError = value === 0n ? 0 : 1;
      this.#card.resets.now('write to stop_on_err');
    });
  }

  /** Handles the commands of the file `device`. */
  #command(text: string): number {
    const card = this.#card;
    if (text.startsWith('disable')) card.disable();
    else if (text.startsWith('enable')) card.setStatus(HL_DEVICE_STATUS.OPERATIONAL);
    else if (text.startsWith('cpu_timeout')) card.resets.loseHeartbeat();
    else if (!text.startsWith('suspend') && !text.startsWith('resume')) return -Errno.EINVAL;
    return 0;
  }

  /** Files that list objects of the driver. */
  #listNodes(): Readonly<Record<string, Node>> {
    return {
      command_buffers: { mode: 0o444, read: () => this.#commandBuffers() },
      engines: { mode: 0o444, read: () => (this.#inReset ? '' : engineStatusText(this.#card)) },
    };
  }

  #commandBuffers(): string {
    const buffers = this.#card.context?.buffers.commandBuffers() ?? [];
    const lines = buffers.map(({ handle, byteLength, mapped }) => {
      const size = byteLength.toString(16).padStart(8, '0');
      // The handle holds one reference and the mapping another. A user context has address space id 1.
      const references = mapped ? 2 : 1;
      return `   ${String(handle).padStart(3, '0')}        1    0x${size}      ${references}          ${mapped ? 1 : 0}          0\n`;
    });
    return lines.length === 0 ? '' : `\n${CB_HEADER}${lines.join('')}\n`;
  }
}

const DEVICE_HELP = 'Valid values: disable, enable, suspend, resume, cpu_timeout\n';
const CB_HEADER = ` CB ID   CTX ID   CB size    CB RefCnt    mmap?   CS counter
---------------------------------------------------------------
`;

/** Runs an action with a parsed number; returns its errno, or that of the parser. */
function onNumber(value: bigint | number, action: (value: bigint) => unknown): number {
  if (typeof value === 'number') return value;
  const result = action(value);
  return typeof result === 'number' ? result : 0;
}

const BITS_32 = 32n;
/** Bytes per step of a copy. */
const COPY_BYTES = 32_768;

/**
 * Device memory and registers as the driver accesses them: by card addresses, including physical ones.
 *
 * Source: drivers/accel/habanalabs/common/debugfs.c, Linux 6.12.
 */
class DeviceWindow {
  readonly #device: GaudiDevice;
  readonly #physicalBase: bigint;
  #memory: PhysicalMemory | undefined;
  #offset = 0;
  #available = 0;

  constructor(device: GaudiDevice) {
    this.#device = device;
    this.#physicalBase = device.profile.dram.base;
  }

  /** Reads 4 or 8 bytes; -EINVAL if the address is unmapped (hl_access_mem). */
  read(address: bigint, byteLength: 4 | 8): bigint | number {
    if (!this.#find(address) || this.#available < byteLength) return -Errno.EINVAL;
    if (this.#memory === undefined) return this.#readRegisters(byteLength);
    const scratch = allocateScratch(8);
    scratch.words.fill(0);
    fetchBytes(this.#memory, this.#offset, scratch.address, byteLength);
    const value = byteLength === 4 ? BigInt(scratch.words[0]!) : scratch.view.getBigUint64(0, true);
    scratch.free();
    return value;
  }

  /** Writes 4 or 8 bytes, with the effects of register writes; -EINVAL if the address is unmapped. */
  write(address: bigint, byteLength: 4 | 8, value: bigint): number {
    if (!this.#find(address) || this.#available < byteLength) return -Errno.EINVAL;
    if (this.#memory === undefined) {
      const { registers } = this.#device;
      registers.writeRegister(this.#offset, Number(BigInt.asIntN(32, value)));
      if (byteLength === 8) registers.writeRegister(this.#offset + 4, Number(BigInt.asIntN(32, value >> BITS_32)));
      return 0;
    }
    const scratch = allocateScratch(8);
    scratch.view.setBigUint64(0, value, true);
    storeBytes(this.#memory, this.#offset, scratch.address, byteLength);
    scratch.free();
    return 0;
  }

  /** Copies memory into an array; returns false if a part of the range is unmapped. */
  copy(address: bigint, target: Uint8Array): boolean {
    const scratch = allocateScratch(COPY_BYTES);
    try {
      for (let done = 0; done < target.byteLength; ) {
        if (!this.#find(address + BigInt(done)) || this.#memory === undefined) return false;
        const piece = Math.min(target.byteLength - done, this.#available, COPY_BYTES);
        fetchBytes(this.#memory, this.#offset, scratch.address, piece);
        target.set(scratch.u8.subarray(0, piece), done);
        done += piece;
      }
      return true;
    } finally {
      scratch.free();
    }
  }

  #readRegisters(byteLength: 4 | 8): bigint {
    const { registers } = this.#device;
    const low = BigInt(registers.readRegister(this.#offset) >>> 0);
    if (byteLength === 4) return low;
    return (BigInt(registers.readRegister(this.#offset + 4) >>> 0) << BITS_32) | low;
  }

  /** Looks up the memory or the register at an address; returns false if there is neither. */
  #find(address: bigint): boolean {
    const { addressMap: map, hbm } = this.#device;
    const target = map.decode(Number(BigInt.asIntN(32, address >> BITS_32)), Number(BigInt.asIntN(32, address)));
    this.#memory = target === Target.MEMORY ? map.memory : undefined;
    this.#offset = map.offset;
    this.#available = map.available;
    if (target !== Target.UNMAPPED) return true;
    const physical = address - this.#physicalBase;
    if (physical < 0n || physical >= BigInt(hbm.byteLength)) return false;
    this.#memory = hbm;
    this.#offset = Number(physical);
    this.#available = hbm.byteLength - this.#offset;
    return true;
  }
}
