/** Decides, from data, whether libucp can be given addresses of cards or needs host fragments, and why. It calls neither libucp nor a card. */

/** The memory type as UCX calls it. */
const GAUDI = 'gaudi';

/** What the answer depends on. */
export interface DeviceAccessInput {
  /** Of libucp, such as `1.13.1`. */
  readonly version: string;
  /** The memory types that it knows; the place of a name is the number of the type. */
  readonly memoryTypes: readonly string[];
  /** Bits of those that its context can use on this machine (ucp_context_attr_t.memory_types). */
  readonly usableTypes: bigint;
  /** The cards are emulated. */
  readonly emulated: boolean;
}

/** The answer. */
export interface DeviceAccess {
  /** Device addresses go straight in. */
  readonly isDirect: boolean;
  /** The number of the memory type; 0, host memory, where they do not. */
  readonly memoryType: number;
  readonly reason: string;
}

/** The answer once libucp was tried on memory of a card. @param refusal why it does not reach it, by probeDevice; undefined where it does */
export function accessAfterProbe(access: DeviceAccess, refusal: string | undefined): DeviceAccess {
  if (refusal === undefined) return { ...access, reason: `${access.reason}, and reaches a card of this program` };
  const reason = `${access.reason}, but does not reach a card of this program: ${refusal}`;
  return { isDirect: false, memoryType: 0, reason };
}

/** Gives the answer, as far as libucp tells by itself. */
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
