/**
 * The one-sided operations of a card in the attributes of interfaces: all of them, or none with the reason. The memory that they reach depends on the
 * transport.
 */

import type { Device } from '../../../../hlthunk/index.ts';
import { type IfaceAttributes, IfaceFlag, type RmaLimits } from '../../../api/iface.ts';
import { IOV_MAX, SHORT_BYTES_MAX } from '../card/dma-limits.ts';

const NO_LIMITS: RmaLimits = { shortBytesMax: 0, zcopyBytesMin: 0, zcopyBytesMax: 0, iovMax: 0 };
const OPERATIONS: number = IfaceFlag.PUT_SHORT | IfaceFlag.PUT_ZCOPY | IfaceFlag.GET_SHORT | IfaceFlag.GET_ZCOPY;

/** The attributes of put and get; `flags` contains only those of these operations. */
export type CardRma = Pick<IfaceAttributes, 'flags' | 'put' | 'get' | 'limitation'>;

/** The operations of a card; none if there is a `limitation`. @param iovMax maximum number of entries of a list */
export function cardRma(limitation: string | undefined, iovMax: number = IOV_MAX): CardRma {
  if (limitation === undefined) {
    const limits = { shortBytesMax: SHORT_BYTES_MAX, zcopyBytesMin: 1, zcopyBytesMax: Number.MAX_SAFE_INTEGER, iovMax };
    return { flags: OPERATIONS, put: limits, get: limits, limitation };
  }
  return { flags: 0, put: NO_LIMITS, get: NO_LIMITS, limitation };
}

/** The reason why the card executes no transfers; undefined if it does. */
export function submitLimitation({ info }: Device): string | undefined {
  return info.profile.capabilities.submits ? undefined : `the driver of ${info.profile.name} takes no transfers`;
}
