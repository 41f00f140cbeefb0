/** Limits and directions of the transfers of a card, for all Gaudi transports. Constants only. */

/** Bytes of a short operation: the room beside its packet in a command buffer. */
export const SHORT_BYTES_MAX = 1024;
/** Maximum number of entries of a zero-copy list; each is one transfer. */
export const IOV_MAX = 16;
/** The hardware queues of a card, by the direction of a transfer. Each completes in order. */
export const Direction = { HOST_TO_DEVICE: 0, DEVICE_TO_HOST: 1, DEVICE_TO_DEVICE: 2 } as const;
export type Direction = (typeof Direction)[keyof typeof Direction];
/** Number of directions. */
export const DIRECTIONS = 3;
