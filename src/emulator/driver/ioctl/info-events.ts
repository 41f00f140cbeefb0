/** INFO ops for faults and events. */

import { Errno } from '../../../sys/index.ts';
import {
  HL_INFO_ARGS,
  HL_INFO_CS_TIMEOUT_EVENT,
  HL_INFO_ENGINE_ERR_EVENT,
  HL_INFO_FW_ERR_EVENT,
  HL_INFO_HW_ERR_EVENT,
  HL_INFO_LAST_ERR_OPEN_DEV_TIME,
  HL_INFO_OP,
  HL_INFO_RAZWI_EVENT,
  HL_INFO_UNDEFINED_OPCODE_EVENT,
  HL_PAGE_FAULT_INFO,
  HL_USER_MAPPING,
} from '../../../uapi/index.ts';
import { always, encode, type InfoOps, type InfoRequest, whole, withoutData } from './info-op.ts';

const ARGS = HL_INFO_ARGS.words;
const EVENT_MASK_BYTES = 8;

/** The time of the last successful open, despite the name of the op (last_err_open_dev_info, Linux 6.12). */
function lastOpenTime({ card }: InfoRequest): Uint8Array {
  return encode(HL_INFO_LAST_ERR_OPEN_DEV_TIME, { timestamp: BigInt(card.openRecord.openedAtNs) });
}

function csTimeout({ card }: InfoRequest): Uint8Array {
  const record = card.records.lastCsTimeout;
  return encode(HL_INFO_CS_TIMEOUT_EVENT, {
    timestamp: BigInt(record?.timestampNs ?? 0),
    seq: BigInt(record?.seq ?? 0),
  });
}

/** Without a record, the driver does not write to the buffer (razwi_info, Linux 6.12); the same holds for page faults and errors. */
function razwi({ card }: InfoRequest): Uint8Array | number {
  const record = card.records.lastRazwi;
  if (record === undefined) return 0;
  return encode(HL_INFO_RAZWI_EVENT, {
    timestamp: BigInt(record.timestampNs),
    addr: record.address,
    engine_id: [record.engineId],
    num_of_possible_engines: 1,
    flags: record.flags,
  });
}

function undefinedOpcode({ card }: InfoRequest): Uint8Array {
  const record = card.records.lastUndefinedOpcode;
  if (record === undefined) return encode(HL_INFO_UNDEFINED_OPCODE_EVENT, {});
  return encode(HL_INFO_UNDEFINED_OPCODE_EVENT, {
    timestamp: BigInt(record.timestampNs),
    engine_id: record.engineId,
    stream_id: record.streamId,
  });
}

function pageFault({ card }: InfoRequest): Uint8Array | number {
  const { records, profile } = card;
  const record = records.lastPageFault;
  if (record === undefined) return 0;
  // Gaudi2 does not report the engine.
  const engine_id = profile.capabilities.vendorDriver ? record.engineId : 0;
  return encode(HL_PAGE_FAULT_INFO, { timestamp: BigInt(record.timestampNs), addr: record.address, engine_id });
}

/** The mappings at the time of the page fault; the arguments return the required buffer length. */
function userMappings({ card, words, returnSize }: InfoRequest): Uint8Array | number {
  const mappings = card.records.lastPageFault?.mappings;
  if (mappings === undefined) return 0;
  const bytes = new Uint8Array(mappings.length * HL_USER_MAPPING.size);
  words[ARGS.array_size] = mappings.length;
  if (bytes.byteLength === 0) return 0;
  if (returnSize < bytes.byteLength) return Errno.ENOMEM;
  const view = new DataView(bytes.buffer);
  for (const [index, { address, byteLength }] of mappings.entries()) {
    HL_USER_MAPPING.encode({ dev_va: address, size: BigInt(byteLength) }, view, index * HL_USER_MAPPING.size);
  }
  return bytes;
}

function engineError({ card, returnSize }: InfoRequest): Uint8Array | number {
  const record = card.records.lastEngineError;
  if (record === undefined) return 0;
  if (returnSize < HL_INFO_ENGINE_ERR_EVENT.size) return Errno.ENOMEM;
  const timestamp = BigInt(record.timestampNs);
  return encode(HL_INFO_ENGINE_ERR_EVENT, { timestamp, engine_id: record.engineId, error_count: 1 });
}

function hardwareError({ card, returnSize }: InfoRequest): Uint8Array | number {
  const record = card.records.lastHardwareError;
  if (record === undefined) return 0;
  if (returnSize < HL_INFO_HW_ERR_EVENT.size) return Errno.ENOMEM;
  return encode(HL_INFO_HW_ERR_EVENT, { timestamp: BigInt(record.timestampNs), event_id: record.event });
}

function firmwareError({ card, returnSize }: InfoRequest): Uint8Array | number {
  const record = card.records.lastFirmwareError;
  if (record === undefined) return 0;
  if (returnSize < HL_INFO_FW_ERR_EVENT.size) return Errno.ENOMEM;
  return encode(HL_INFO_FW_ERR_EVENT, { timestamp: BigInt(record.timestampNs), err_type: record.type });
}

function registerEventFd({ notifier, words }: InfoRequest): number {
  return notifier!.register(words[ARGS.eventfd]! | 0);
}

function unregisterEventFd({ notifier }: InfoRequest): number {
  return notifier!.unregister();
}

function getEvents({ notifier, returnSize }: InfoRequest): Uint8Array | number {
  if (returnSize < EVENT_MASK_BYTES) return Errno.EINVAL;
  const bytes = new Uint8Array(EVENT_MASK_BYTES);
  new DataView(bytes.buffer).setUint32(0, notifier!.takeEvents(), true);
  return bytes;
}

export const EVENT_OPS: InfoOps = [
  [HL_INFO_OP.LAST_ERR_OPEN_DEV_TIME, always(lastOpenTime)],
  [HL_INFO_OP.CS_TIMEOUT_EVENT, always(csTimeout)],
  [HL_INFO_OP.RAZWI_EVENT, always(razwi)],
  [HL_INFO_OP.UNDEFINED_OPCODE_EVENT, always(undefinedOpcode)],
  [HL_INFO_OP.PAGE_FAULT_EVENT, always(pageFault)],
  [HL_INFO_OP.USER_MAPPINGS, whole(userMappings)],
  [HL_INFO_OP.REGISTER_EVENTFD, withoutData(false, registerEventFd)],
  [HL_INFO_OP.UNREGISTER_EVENTFD, withoutData(true, unregisterEventFd)],
  [HL_INFO_OP.GET_EVENTS, always(getEvents)],
  [HL_INFO_OP.HW_ERR_EVENT, whole(hardwareError)],
  [HL_INFO_OP.FW_ERR_EVENT, whole(firmwareError)],
  [HL_INFO_OP.USER_ENGINE_ERR_EVENT, whole(engineError)],
];
