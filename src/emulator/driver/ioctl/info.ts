/**
 * The INFO ioctl: its framing, the table of its ops, and those of the firmware.
 *
 * Source: drivers/accel/habanalabs/common/habanalabs_ioctl.c, Linux 6.12. On gaudi3, TIME_SYNC_PER_DIE (39) and MODULE_PARAMS (255) of the vendor's driver
 * are EINVAL like unknown ops, because the layouts of their results were not collected.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import {
  CPUCP_REPLACED_ROWS_BYTES,
  HL_DEVICE_STATUS,
  HL_INFO_ARGS,
  HL_INFO_CLK_RATE,
  HL_INFO_DEV_MEMALLOC_PAGE_SIZES,
  HL_INFO_HW_IP_INFO,
  HL_INFO_OP,
  HL_INFO_SEC_ATTEST,
  HL_INFO_SIGNED,
  HL_INFO_SYNC_MANAGER,
  HL_MAX_DCORES,
  HL_PLL_FREQUENCY_INFO,
  NO_USER_RESOURCE,
  reportedDramBase,
  reportedDramSize,
} from '../../../uapi/index.ts';
import { FIRMWARE_VERSION, PCI_REVISION } from '../base/firmware.ts';
import type { Notifier } from '../base/notifier.ts';
import { readNumber } from '../base/numbers.ts';
import type { CardState } from '../card-state.ts';
import type { UserMemory } from '../memory/user-memory.ts';
import type { Context } from './context.ts';
import { EVENT_OPS } from './info-events.ts';
import { always, encode, type InfoOp, type InfoOps, type InfoRequest, operational, withoutData } from './info-op.ts';
import { STATE_OPS } from './info-state.ts';

/** Upper bound of the DRAM size that a device without DRAM reports (struct hl_info_hw_ip_info). */
const DRAM_BYTES_MIN = 4096n;

const PLL_OUTPUTS_MHZ: readonly number[] = [1000, 500, 250, 125];

/** A string as a NUL-terminated field of fixed length. */
function text(value: string, byteLength: number): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  new TextEncoder().encodeInto(value, bytes.subarray(0, byteLength - 1));
  return bytes;
}

function hwIpInfo({ card }: InfoRequest): Uint8Array {
  const { profile, place, device } = card;
  const { dram, sram, engines, interrupts, channels, capabilities } = profile;
  const reportsNics = card.config.reportNicPorts && capabilities.nicPortMasks;
  const hbmBytes = BigInt(device.hbm.byteLength);
  const dramBytes = reportedDramSize(dram, hbmBytes);
  return encode(HL_INFO_HW_IP_INFO, {
    sram_base_address: sram.start,
    dram_base_address: reportedDramBase(dram, hbmBytes),
    dram_size: dramBytes,
    sram_size: profile.sramIsCache ? 0 : Number(sram.end - sram.start),
    num_of_events: profile.numOfEvents,
    device_id: profile.pciDeviceId,
    module_id: place.moduleId,
    decoder_enabled_mask: engines.decoderMask,
    first_available_interrupt_id: interrupts.firstUserInterrupt,
    server_type: profile.serverType,
    cpld_version: 0,
    tpc_enabled_mask: Number(engines.tpcMask & 0xffn),
    dram_enabled: dramBytes > DRAM_BYTES_MIN ? 1 : 0,
    mme_master_slave_mode: engines.mmeMasterSlaveMode,
    cpucp_version: text(FIRMWARE_VERSION, 128),
    card_name: text(profile.cardName, 16),
    tpc_enabled_mask_ext: engines.tpcMask,
    dram_page_size: dram.pageSize,
    edma_enabled_mask: engines.edmaMask,
    number_of_user_interrupts: interrupts.userInterruptCount,
    // Both property functions set it to dram_page_size (gaudi.c and gaudi2.c, Linux 6.12).
    device_mem_alloc_default_page_size: dram.pageSize,
    nic_ports_mask: reportsNics ? 2n ** BigInt(engines.nicCount) - 1n : 0n,
    nic_ports_external_mask: reportsNics ? engines.nicScaleOutMask : 0n,
    revision_id: PCI_REVISION,
    tpc_interrupt_id: interrupts.tpcInterrupt,
    rotator_enabled_mask: engines.rotatorMask,
    reserved_dram_size: dram.reservedSize,
    pdma_user_owned_ch_mask: BigInt(channels?.userMask ?? 0),
    mme_enabled_mask: engines.mmeMask,
    odp_supported: capabilities.onDemandPaging ? 1 : 0,
    sched_arc_enabled_mask: engines.schedulerArcMask,
  });
}

function syncManager({ card, words }: InfoRequest): Uint8Array | number {
  const dcore = words[ARGS.dcore_id]!;
  if (dcore >= HL_MAX_DCORES) return Errno.EINVAL;
  const { managers } = card.profile.sync;
  const manager = managers.find((candidate) => candidate.dcore === dcore);
  return encode(HL_INFO_SYNC_MANAGER, {
    first_available_sync_object: manager?.firstUserSob ?? 0,
    first_available_monitor: manager?.firstUserMonitor ?? 0,
    first_available_cq: (manager ?? managers.at(-1))?.firstUserCq ?? NO_USER_RESOURCE,
  });
}

function clockRate({ card }: InfoRequest): Uint8Array {
  const { clockMhz, maxClockMhz } = card.limits;
  return encode(HL_INFO_CLK_RATE, { cur_clk_rate_mhz: clockMhz, max_clk_rate_mhz: maxClockMhz });
}

/** The driver maps indices to those of the firmware, and rejects unknown ones (get_used_pll_index). */
function pllFrequency({ card, words }: InfoRequest): Uint8Array | number {
  if (words[ARGS.pll_index]! >= card.profile.pllCount) return Errno.EINVAL;
  return encode(HL_PLL_FREQUENCY_INFO, { output: PLL_OUTPUTS_MHZ });
}

/** INFO ops for constants of the ASIC and the board. */
const HARDWARE_OPS: InfoOps = [
  [HL_INFO_OP.HW_IP_INFO, always(hwIpInfo)],
  [HL_INFO_OP.SYNC_MANAGER, always(syncManager)],
  [HL_INFO_OP.CLK_RATE, operational(clockRate)],
  [HL_INFO_OP.PLL_FREQUENCY, operational(pllFrequency)],
  [
    HL_INFO_OP.DEV_MEM_ALLOC_PAGE_SIZES,
    always(({ card }) => {
      const page_order_bitmask = card.profile.dram.pageSizes.reduce((mask, size) => mask | size, 0n);
      return encode(HL_INFO_DEV_MEMALLOC_PAGE_SIZES, { page_order_bitmask });
    }),
  ],
];

const ARGS = HL_INFO_ARGS.words;
/** Largest buffer of FW_GENERIC_REQ. */
const FIRMWARE_BYTES_MAX = 2 ** 20;
/** Ops that the control node rejects before any other check (hl_info_ioctl_control). */
const EVENT_FD_OPS: ReadonlySet<number> = new Set([
  HL_INFO_OP.REGISTER_EVENTFD,
  HL_INFO_OP.UNREGISTER_EVENTFD,
  HL_INFO_OP.GET_EVENTS,
]);
/** The number of HBM rows pending replacement is always 0, like the number of replaced rows. */
const PENDING_ROWS_BYTES = 4;

/** The emulated firmware does not support any request that the driver passes to it. */
function firmwareRequest({ card, words, returnSize }: InfoRequest): number {
  const { firmwareRequests } = card.profile.capabilities;
  if (words[ARGS.fw_sub_opcode]! >= firmwareRequests) return Errno.EINVAL;
  return returnSize > FIRMWARE_BYTES_MAX ? Errno.EINVAL : Errno.EOPNOTSUPP;
}

/** Ops that the driver passes to the firmware. The emulated firmware has no keys: its attestation is empty except for the nonce. */
const FIRMWARE_OPS: InfoOps = [
  [HL_INFO_OP.DRAM_REPLACED_ROWS, operational(() => new Uint8Array(CPUCP_REPLACED_ROWS_BYTES))],
  [HL_INFO_OP.DRAM_PENDING_ROWS, operational(() => new Uint8Array(PENDING_ROWS_BYTES))],
  [
    HL_INFO_OP.SECURED_ATTESTATION,
    operational(({ words }) => encode(HL_INFO_SEC_ATTEST, { nonce: words[ARGS.sec_attest_nonce]! })),
  ],
  [HL_INFO_OP.DEV_SIGNED, operational(({ words }) => encode(HL_INFO_SIGNED, { nonce: words[ARGS.sec_attest_nonce]! }))],
  [HL_INFO_OP.FW_GENERIC_REQ, withoutData(false, firmwareRequest)],
];

const OPS: ReadonlyMap<number, InfoOp> = new Map<number, InfoOp>([
  ...HARDWARE_OPS,
  ...STATE_OPS,
  ...EVENT_OPS,
  ...FIRMWARE_OPS,
]);

/** The file on which INFO was called. */
export interface InfoFile {
  readonly card: CardState;
  /** Memory of the caller. */
  readonly userMemory: UserMemory;
  /** Undefined on the control node, like the notifier. */
  readonly context: Context | undefined;
  readonly notifier: Notifier | undefined;
}

export function infoIoctl({ card, userMemory, context, notifier }: InfoFile, block: ArgumentBlock): number {
  const { words } = block;
  const number = words[ARGS.op]!;
  if (notifier === undefined && EVENT_FD_OPS.has(number)) return -Errno.EOPNOTSUPP;
  if (words[ARGS.pad] !== 0) return -Errno.EINVAL;
  const op = OPS.get(number);
  if (op?.always !== true && card.status !== HL_DEVICE_STATUS.OPERATIONAL) return -Errno.EBUSY;
  if (op === undefined) return -Errno.EINVAL;
  const returnSize = words[ARGS.return_size]!;
  const returnPointer = readNumber(words, ARGS.return_pointer);
  if (op.returnsData && (returnPointer === 0 || (returnSize === 0 && !op.isWhole))) return -Errno.EINVAL;
  const answer = op.run({ card, context, notifier, words, returnSize });
  if (typeof answer === 'number') return 0 - answer;
  const bytes = returnSize < answer.byteLength ? answer.subarray(0, returnSize) : answer;
  return userMemory.writeResult(block, returnPointer, bytes) ? 0 : -Errno.EFAULT;
}
