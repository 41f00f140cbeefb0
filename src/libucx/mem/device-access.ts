/** Decides, from data, whether libucp accepts addresses of cards or needs host fragments, and why. It calls neither libucp nor a card. */

/** Name of the memory type in UCX. */
const GAUDI = 'gaudi';

/** Inputs of the decision. */
export interface DeviceAccessInput {
  /** Version of libucp, such as `1.13.1`. */
  readonly version: string;
  /** The names of its memory types; the index of a name is the number of the type. */
  readonly memoryTypes: readonly string[];
  /** Bits of the types that its context supports on this machine (ucp_context_attr_t.memory_types). */
  readonly usableTypes: bigint;
  /** Whether the cards are emulated. */
  readonly emulated: boolean;
}

/** The decision. */
export interface DeviceAccess {
  /** Whether device addresses are passed to libucp. */
  readonly isDirect: boolean;
  /** The number of the memory type; 0, host memory, if they are not. */
  readonly memoryType: number;
  readonly reason: string;
}

/** The decision after libucp was probed on memory of a card. @param refusal reason of probeDevice why it does not reach it; undefined if it does */
export function accessAfterProbe(access: DeviceAccess, refusal: string | undefined): DeviceAccess {
  if (refusal === undefined) return { ...access, reason: `${access.reason}, and reaches a card of this program` };
  const reason = `${access.reason}, but does not reach a card of this program: ${refusal}`;
  return { isDirect: false, memoryType: 0, reason };
}

/** Decides from the properties that libucp reports. */
export function deviceAccess({ version, memoryTypes, usableTypes, emulated }: DeviceAccessInput): DeviceAccess {
  const memoryType = memoryTypes.indexOf(GAUDI);
  const staged = (reason: string): DeviceAccess => ({ isDirect: false, memoryType: 0, reason });
  if (memoryType < 0) return staged(`UCX ${version} does not know memory type ${GAUDI}: 1.21 and newer do`);
  if ((usableTypes & (1n << BigInt(memoryType))) === 0n) {
    return staged(
      `no memory domain of UCX ${version} serves memory type ${GAUDI} here: its module for it is missing, or finds no card`,
    );
  }
  if (emulated) return staged('the cards are emulated: their addresses mean nothing to libucp');
  return { isDirect: true, memoryType, reason: `UCX ${version} knows memory type ${GAUDI}` };
}
