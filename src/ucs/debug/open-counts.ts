/**
 * How many of some things are open in this process that neither the kernel nor a memory map shows: checks for leaks compare them before and after. Each costs
 * an addition, on paths that call a transport anyway.
 */

/** The counts; who opens adds, who closes subtracts. */
export const OPEN = {
  /** Unpacked remote keys that a connection, a team or a worker keeps for itself. */
  keptKeys: 0,
  /** Slots of the send queues and send buffers of rc that closed interfaces had not got back from their connections. */
  sendSlots: 0,
  /** Pieces of scratch memory that collective operations use. */
  scratchPieces: 0,
};
