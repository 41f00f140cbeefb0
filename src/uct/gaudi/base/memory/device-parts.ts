/** Finds the block for an address of device memory that the application owns, for use in transfers. The memory domains register it. */

import { type DeviceBlock, type DevicePart, GaudiErrorCode, gaudiError } from '../../../../hlthunk/index.ts';
import { MemoryType } from '../../../../ucs/memory/memory-type.ts';
import { invalidParam } from '../../../../ucs/type/error.ts';
import type { DeviceRange, RegistrationSource } from '../../../api/memory-domain.ts';
import type { GaudiCard } from '../card/gaudi-cards.ts';
import { GaudiMemory } from './gaudi-memory.ts';

/** A part of a block, and its card. */
export interface PartOfCard {
  readonly card: GaudiCard;
  readonly block: DeviceBlock;
  readonly part: DevicePart;
}

/**
 * Whether the source is memory of a card.
 * @throws UcxError ERR_INVALID_PARAM for an object of the same shape that this library did not create
 */
export function isDeviceRange(source: RegistrationSource): source is DeviceRange {
  if (source instanceof GaudiMemory && !GaudiMemory.isGenuine(source)) {
    throw invalidParam('memory', 'must be memory, and not what has it as its prototype', source);
  }
  return (
    typeof source === 'object' && source !== null && 'memoryType' in source && source.memoryType === MemoryType.GAUDI
  );
}

/**
 * The card with this index.
 * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND
 */
export function cardAt(cards: readonly GaudiCard[], sysDevice: number): GaudiCard {
  const card = cards.find(({ index }) => index === sysDevice);
  if (card !== undefined) return card;
  const known = cards.map(({ index }) => index).join(', ');
  throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `sysDevice ${sysDevice} is no open card (they are ${known})`);
}

/**
 * Finds the part of a block for a range.
 * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND; ERR_INVALID_PARAM for a range that is not inside one allocation of the card
 */
export function partAt(cards: readonly GaudiCard[], { address, byteLength, sysDevice }: DeviceRange): PartOfCard {
  if (typeof address !== 'bigint') throw invalidParam('address', 'must be a bigint: a device address', address);
  if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
    throw invalidParam('byteLength', 'must be a positive integer', byteLength);
  }
  const card = cardAt(cards, sysDevice);
  const block = card.device.memory.find(address);
  const offset = block === undefined ? 0 : Number(address - block.address);
  if (block === undefined || byteLength > block.byteLength - offset) {
    const rule = `plus byteLength ${byteLength} must lie in one allocation of ${card.device.card.name} that was made by hl-thunk`;
    throw invalidParam('address', rule, `0x${address.toString(16)}`);
  }
  return { card, block, part: block.part(offset, byteLength) };
}
