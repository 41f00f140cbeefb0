/**
 * The frames of tcp on an established connection: what their words mean. Little-endian, padded to 8 bytes, so that every frame begins at a
 * multiple of 8 of the stream. No behaviour.
 *
 * Word 0: type in the low 8 bits, id of the active message in the next 8. Word 1: bytes of the body behind the header, without padding.
 * 64-bit values are two words, low first. Acknowledgements and answers come in the order of what they are for.
 */

/** Types. A change in their meaning is a new {@link TCP_VERSION}. */
export const FrameType = {
  /** Body: the message. */
  AM: 1,
  /** Words 2 to 7 key, 8 and 9 offset; body: the bytes. */
  PUT: 2,
  /** Word 1: so many puts have arrived, and their bytes are in memory. */
  ACK: 3,
  /** Word 1: the status that the next put has failed with. */
  NACK: 4,
  /** Words 2 to 7 key, 8 and 9 offset, 10 and 11 length. */
  GET: 5,
  /** Word 2: status; body: the bytes of the next get, nothing for a failure. */
  GET_DATA: 6,
  /** Word 1: the process of the sender lives, and says so every so many milliseconds. */
  HEARTBEAT: 7,
  /** The sender has no endpoint on this connection any more, and makes no new one on it. */
  BYE: 8,
} as const;

/** Version of frames and hellos. */
export const TCP_VERSION = 2;

/** Bytes of the header of each type. */
export const HEADER_BYTES = 8;
export const PUT_HEADER_BYTES = 40;
export const GET_HEADER_BYTES = 48;
export const GET_DATA_HEADER_BYTES = 16;
/** Bytes of the longest header. */
export const HEADER_BYTES_MAX = 48;

/** Places of the words. */
export const FrameWord = { INFO: 0, LENGTH: 1, KEY: 2, STATUS: 2, OFFSET: 8, GET_LENGTH: 10 } as const;

/** Words of a key in a frame: slot, generation, secret. */
export const KEY_WORDS = 6;

/** Bytes of one put or get frame at most: longer ones are split. */
export const FRAME_BODY_BYTES_MAX: number = 2 ** 30;

/** Gets that one end may have asked for and not got; more are a violation. */
export const GETS_MAX = 64;
/** Puts that one end may have sent without an acknowledgement; more wait. */
export const PUTS_MAX = 4096;

/** A length with its padding. */
export function padded(byteLength: number): number {
  return (byteLength + 7) & ~7;
}

/** Bytes of the header of a type; 0 for a type that is none. */
export function headerBytesOf(type: number): number {
  switch (type) {
    case FrameType.PUT:
      return PUT_HEADER_BYTES;
    case FrameType.GET:
      return GET_HEADER_BYTES;
    case FrameType.GET_DATA:
      return GET_DATA_HEADER_BYTES;
    default:
      return type >= FrameType.AM && type <= FrameType.BYE ? HEADER_BYTES : 0;
  }
}
