/** INFO ops for the state of the card: status, use, counters, idle engines. */

import { clockMonotonicRawNs, Errno } from '../../../sys/index.ts';
import {
  HL_ENGINES_DATA_MAX_SIZE,
  HL_ENGINES_DATA_MIN_SIZE,
  HL_INFO_ARGS,
  HL_INFO_CLK_THROTTLE,
  HL_INFO_CS_COUNTERS,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_DEVICE_UTILIZATION,
  HL_INFO_DRAM_USAGE,
  HL_INFO_ENERGY,
  HL_INFO_HW_IDLE,
  HL_INFO_OP,
  HL_INFO_PCI_COUNTERS,
  HL_INFO_RESET_COUNT,
  HL_INFO_TIME_SYNC,
  HL_OPEN_STATS_INFO,
  HL_POWER_INFO,
} from '../../../uapi/index.ts';
import type { CardState } from '../card-state.ts';
import { CsCounters } from '../submission/submission.ts';
import { always, encode, type InfoOps, type InfoRequest, operational } from './info-op.ts';

const ARGS = HL_INFO_ARGS.words;
const BYTES_PER_KB = 1000;
const NS_PER_MS = 1e6;
/** Words of the mask of busy engines. */
const BUSY_MASK_WORDS = 4;
/** hwmon reports microwatts, the ioctl milliwatts. */
const MICROWATT_PER_MILLIWATT = 1000;

function eventCounts({ card }: InfoRequest, counts: ReadonlyMap<number, number>): Uint8Array | number {
  const { numOfEvents, capabilities } = card.profile;
  if (!capabilities.eventStatistics) return Errno.EOPNOTSUPP;
  const words = new Uint32Array(numOfEvents);
  for (const [event, count] of counts) if (event < numOfEvents) words[event] = count;
  return new Uint8Array(words.buffer);
}

function dramUsage({ card, context }: InfoRequest): Uint8Array {
  const user = card.device.hbm.byteLength - Number(card.profile.dram.reservedSize);
  return encode(HL_INFO_DRAM_USAGE, {
    dram_free_mem: BigInt.asUintN(64, BigInt(user - card.dramUsedBytes)),
    ctx_dram_mem: BigInt.asUintN(64, BigInt(context?.deviceMemory.usedBytes ?? 0)),
  });
}

/** Ids of busy engines, as bits of 64-bit words. */
function busyEngines({ card }: InfoRequest): bigint[] {
  const mask = new Array<bigint>(BUSY_MASK_WORDS).fill(0n);
  for (const id of card.device.busyEngines()) {
    const word = Math.floor(id / 64);
    if (word < BUSY_MASK_WORDS) mask[word] = mask[word]! | (1n << BigInt(id % 64));
  }
  return mask;
}

function hwIdle(request: InfoRequest): Uint8Array {
  const mask = busyEngines(request);
  return encode(HL_INFO_HW_IDLE, {
    is_idle: request.card.device.idle ? 1 : 0,
    busy_engines_mask: Number(mask[0]! & 0xffff_ffffn),
    busy_engines_mask_ext: mask,
  });
}

function timeSync({ card }: InfoRequest): Uint8Array {
  const hostTime = BigInt(clockMonotonicRawNs());
  return encode(HL_INFO_TIME_SYNC, {
    device_time: BigInt(card.config.clock.nowNs()),
    host_time: hostTime,
    tsc_time: hostTime,
  });
}

function csCounters({ card, context }: InfoRequest): Uint8Array {
  const total = card.dropTotals;
  const own = context?.counters ?? new CsCounters();
  return encode(HL_INFO_CS_COUNTERS, {
    total_out_of_mem_drop_cnt: BigInt(total.outOfMemory),
    ctx_out_of_mem_drop_cnt: BigInt(own.outOfMemory),
    total_parsing_drop_cnt: BigInt(total.parsing),
    ctx_parsing_drop_cnt: BigInt(own.parsing),
    total_queue_full_drop_cnt: BigInt(total.queueFull),
    ctx_queue_full_drop_cnt: BigInt(own.queueFull),
    total_device_in_reset_drop_cnt: BigInt(total.inReset),
    ctx_device_in_reset_drop_cnt: BigInt(own.inReset),
    total_max_cs_in_flight_drop_cnt: BigInt(total.maxCsInFlight),
    ctx_max_cs_in_flight_drop_cnt: BigInt(own.maxCsInFlight),
    total_validation_drop_cnt: BigInt(total.validation),
    ctx_validation_drop_cnt: BigInt(own.validation),
  });
}

function openStats({ card }: InfoRequest): Uint8Array {
  const { releasing, hasMappedResources } = card;
  const { opens, lastPeriodNs } = card.openRecord;
  return encode(HL_OPEN_STATS_INFO, {
    open_counter: BigInt(opens),
    last_open_period_ms: BigInt(Math.floor(lastPeriodNs / NS_PER_MS)),
    is_compute_ctx_active: card.hasContext ? 1 : 0,
    compute_ctx_in_release: releasing ? 1 : 0,
    compute_ctx_has_mapped_resources: hasMappedResources ? 1 : 0,
  });
}

/** In kilobytes per second. The emulated link has no replays. */
function pciCounters({ card }: InfoRequest): Uint8Array {
  const { receive, transmit } = card.device.traffic.throughputAt(card.config.clock.nowNs());
  return encode(HL_INFO_PCI_COUNTERS, {
    rx_throughput: BigInt(Math.round(receive / BYTES_PER_KB)),
    tx_throughput: BigInt(Math.round(transmit / BYTES_PER_KB)),
  });
}

/** A table of the engines in use. */
export function engineStatusText(card: CardState): string {
  const lines = ['', 'QUEUE                 is_idle  pending'];
  for (const stream of card.device.usedStreams()) {
    lines.push(`${stream.name.padEnd(22)}${(stream.idle ? 'Y' : 'N').padEnd(9)}${stream.pending.length}`);
  }
  for (const { number, pendingBytes } of card.device.channels?.busyChannels() ?? []) {
    lines.push(`${`PDMA channel ${number}`.padEnd(22)}${'N'.padEnd(9)}${pendingBytes} bytes`);
  }
  return `${lines.join('\n')}\n`;
}

/** Copies the table into a buffer of 1 KiB to 1 MiB that is large enough; the arguments return its length. */
function engineStatus({ card, words, returnSize }: InfoRequest): Uint8Array | number {
  if (returnSize < HL_ENGINES_DATA_MIN_SIZE || returnSize > HL_ENGINES_DATA_MAX_SIZE) return Errno.EINVAL;
  const bytes = new TextEncoder().encode(engineStatusText(card));
  if (bytes.byteLength > returnSize) return Errno.ENOMEM;
  words[ARGS.user_buffer_actual_size] = bytes.byteLength;
  return bytes;
}

export const STATE_OPS: InfoOps = [
  [HL_INFO_OP.HW_EVENTS, always((request) => eventCounts(request, request.card.eventCounts))],
  [HL_INFO_OP.HW_EVENTS_AGGREGATE, always((request) => eventCounts(request, request.card.eventTotals))],
  [HL_INFO_OP.DRAM_USAGE, always(dramUsage)],
  [HL_INFO_OP.HW_IDLE, operational(hwIdle)],
  [HL_INFO_OP.DEVICE_STATUS, always(({ card }) => encode(HL_INFO_DEVICE_STATUS, { status: card.status }))],
  [
    HL_INFO_OP.DEVICE_UTILIZATION,
    operational(({ card }) => encode(HL_INFO_DEVICE_UTILIZATION, { utilization: card.device.idle ? 0 : 100 })),
  ],
  [
    HL_INFO_OP.RESET_COUNT,
    always(({ card }) => {
      // The compute reset at a close is not counted, and other resets are hard resets (hl_device_reset, Linux 6.12).
      return encode(HL_INFO_RESET_COUNT, { hard_reset_cnt: card.hardResets });
    }),
  ],
  [HL_INFO_OP.TIME_SYNC, operational(timeSync)],
  [HL_INFO_OP.CS_COUNTERS, always(csCounters)],
  [HL_INFO_OP.PCI_COUNTERS, operational(pciCounters)],
  [HL_INFO_OP.CLK_THROTTLE_REASON, always(() => encode(HL_INFO_CLK_THROTTLE, {}))],
  [HL_INFO_OP.TOTAL_ENERGY, operational(() => encode(HL_INFO_ENERGY, {}))],
  [
    HL_INFO_OP.POWER,
    operational(({ card }) => {
      const milliwatt = Math.round((card.readSensor('power1_input') ?? 0) / MICROWATT_PER_MILLIWATT);
      return encode(HL_POWER_INFO, { power: BigInt(milliwatt) });
    }),
  ],
  [HL_INFO_OP.OPEN_STATS, always(openStats)],
  [HL_INFO_OP.ENGINE_STATUS, operational(engineStatus)],
];
