/**
 * The one-sided operations of a card as interfaces tell them: all of them, or none with the reason. What they reach is up to the transport.
 */

import type { Device } from '../../../hlthunk/index.ts';
import { type IfaceAttributes, IfaceFlag, type RmaLimits } from '../../api/iface.ts';
import { IOV_MAX, SHORT_BYTES_MAX } from './dma-limits.ts';

const NO_LIMITS: RmaLimits = { shortBytesMax: 0, zcopyBytesMin: 0, zcopyBytesMax: 0, iovMax: 0 };
const OPERATIONS: number = IfaceFlag.PUT_SHORT | IfaceFlag.PUT_ZCOPY | IfaceFlag.GET_SHORT | IfaceFlag.GET_ZCOPY;

/** What attributes say of put and get; `flags` are those of the operations only. */
export type CardRma = Pick<IfaceAttributes, 'flags' | 'put' | 'get' | 'limitation'>;

/** The operations of a card, none of them where there is a `limitation`. @param iovMax entries of a list at most */
export function cardRma(limitation: string | undefined, iovMax: number = IOV_MAX): CardRma {
  if (limitation === undefined) {
    const limits = { shortBytesMax: SHORT_BYTES_MAX, zcopyBytesMin: 1, zcopyBytesMax: Number.MAX_SAFE_INTEGER, iovMax };
    return { flags: OPERATIONS, put: limits, get: limits, limitation };
  }
  return { flags: 0, put: NO_LIMITS, get: NO_LIMITS, limitation };
}

/** Why the card moves no bytes at all; undefined when it does. */
export function submitLimitation({ info }: Device): string | undefined {
  return info.profile.capabilities.submits ? undefined : `the driver of ${info.profile.name} takes no transfers`;
}
