/**
 * Layout of the memory that command processors and engine threads share: channels of descriptors.
 *
 * One region holds a control block and `CHANNELS` channels. A channel is a single-producer single-consumer ring: the
 * command processor writes descriptors and then the producer index, the engine thread executes them in order and then
 * writes the consumer index. Indices run freely modulo 2^32; a descriptor is done when the consumer index has passed it.
 * All offsets are in 32-bit words.
 */

/** Channels per engine thread, one for each stream with work; further streams share a channel, in submission order. */
export const CHANNELS = 64;
/** Descriptors in one channel; a full channel blocks its command processor, nothing is lost. */
export const RING_SLOTS = 512;
const RING_MASK: number = RING_SLOTS - 1;

/** Control block: `SLEEPING` is 1 while the thread waits for the doorbell. */
export const CONTROL_DOORBELL = 0;
export const CONTROL_SLEEPING = 16;
/** Requested notification of the next progress, once: bits of `Wake`. */
export const CONTROL_WAKE = 32;
/** Set to 1 to end the thread. */
export const CONTROL_STOP = 48;
/** Number of channels in use: the thread polls no others. */
export const CONTROL_CHANNELS = 64;
/** State of the thread with respect to the region: see `EngineState`. */
export const CONTROL_STATE = 80;
/** Id of the thread, written before it runs. */
export const CONTROL_THREAD = 81;
const CONTROL_WORDS = 96;

/** Notifications that the submitting thread can request: a signal on the event fd, a notify on the progress word of the node. */
export const Wake = { NONE: 0, EVENT: 1, NOTIFY: 2 } as const;

/** An ended thread never accesses the region again; one that ends without a stop request has failed. */
export const EngineState = { STARTING: 0, RUNNING: 1, ENDED: 2 } as const;

/** Producer and consumer index are on separate cache lines. */
const CHANNEL_PRODUCER = 0;
const CHANNEL_CONSUMER = 16;
const CHANNEL_RING = 32;
const DESCRIPTOR_WORDS = 8;
const CHANNEL_WORDS = CHANNEL_RING + RING_SLOTS * DESCRIPTOR_WORDS;

/** Size of the whole region in bytes. */
export const REGION_BYTES: number = (CONTROL_WORDS + CHANNELS * CHANNEL_WORDS) * 4;

/**
 * Fields of a descriptor. COPY: source, destination, length. FILL: pattern, destination, length. WRITE32: value, destination.
 * Each address is in an address space, which may be DIRECT.
 */
export const DESCRIPTOR_OPCODE = 0;
export const DESCRIPTOR_LENGTH = 1;
export const DESCRIPTOR_SOURCE_LOW = 2;
export const DESCRIPTOR_SOURCE_HIGH = 3;
export const DESCRIPTOR_DESTINATION_LOW = 4;
export const DESCRIPTOR_DESTINATION_HIGH = 5;
export const DESCRIPTOR_SOURCE_SPACE = 6;
export const DESCRIPTOR_DESTINATION_SPACE = 7;

/** 0 is not an opcode: an engine that reads it fails. */
export const Opcode = {
  COPY: 1,
  FILL: 2,
  WRITE32: 3,
  TIMESTAMP: 4,
} as const;

/** Word index of the producer index of a channel. */
export function producerWord(channel: number): number {
  return CONTROL_WORDS + channel * CHANNEL_WORDS + CHANNEL_PRODUCER;
}

/** Word index of the consumer index of a channel. */
export function consumerWord(channel: number): number {
  return CONTROL_WORDS + channel * CHANNEL_WORDS + CHANNEL_CONSUMER;
}

/** Word index of the busy time of a channel, in microseconds modulo 2^32: beside the consumer index, which has the same writer. */
export function busyWord(channel: number): number {
  return consumerWord(channel) + 1;
}

/** Word index of descriptor `index & RING_MASK` of a channel. */
export function descriptorWord(channel: number, index: number): number {
  return CONTROL_WORDS + channel * CHANNEL_WORDS + CHANNEL_RING + (index & RING_MASK) * DESCRIPTOR_WORDS;
}
