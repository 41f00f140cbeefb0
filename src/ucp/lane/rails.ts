/**
 * Rails: a long transfer over a network is divided between the devices that reach the peer, in proportion to their bandwidth. Pure; transports within a
 * node are not divided, as the same processors would do the work.
 */

import { DeviceType } from '../../uct/api/iface.ts';
import { type Candidate, candidateFor, type Plan, Protocol } from '../proto/selection.ts';
import type { Lane } from './lane.ts';
import { nameOf } from './lanes.ts';

/** Parts of a divided transfer begin at multiples of this number of bytes. */
const ALIGNMENT = 64;

/** Limits of dividing transfers. */
export interface RailLimits {
  /** UCX_MAX_RNDV_RAILS. */
  readonly railsMax: number;
  /** UCX_MIN_RNDV_CHUNK_SIZE. */
  readonly chunkBytesMin: number;
  /** UCX_MULTI_LANE_MAX_RATIO. */
  readonly bandwidthRatioMax: number;
}

/** A part of a transfer and the candidate that carries it. */
export interface Rail {
  readonly candidate: Candidate;
  readonly offset: number;
  readonly byteLength: number;
}

/** Divides a transfer; undefined if one lane carries all of it. */
export function railsOf(
  plan: Plan,
  lanes: readonly Lane[],
  byteLength: number,
  { railsMax, chunkBytesMin, bandwidthRatioMax }: RailLimits,
): readonly Rail[] | undefined {
  const best = candidateFor(plan, byteLength);
  if (best === undefined || !isRail(best, lanes)) return undefined;
  const countMax = Math.min(railsMax, Math.floor(byteLength / chunkBytesMin));
  const others = plan.candidates.filter(
    (other) =>
      other.lane !== best.lane && isRail(other, lanes) && other.perByteNs <= best.perByteNs * bandwidthRatioMax,
  );
  others.sort((left, right) => left.perByteNs - right.perByteNs || left.lane - right.lane);
  let chosen = [best, ...others].slice(0, countMax);
  while (chosen.length > 1) {
    const rails = divide(chosen, byteLength);
    const unfit = rails.find(
      ({ candidate, byteLength: share }) => share < candidate.bytesMin || share > candidate.bytesMax,
    );
    if (unfit === undefined) return rails.length > 1 ? rails : undefined;
    // The best candidate can carry the whole transfer: if its share does not fit, drop another candidate.
    const last = unfit.candidate === best ? chosen.at(-1) : unfit.candidate;
    chosen = chosen.filter((candidate) => candidate !== last);
  }
  return undefined;
}

/** Represents all sizes that are long enough to be divided: their shares do not depend on the size. */
const LONG_BYTES: number = 2 ** 40;

/** Describes for users how a plan divides long transfers; undefined if one lane carries all of them. */
export function divisionNote(plan: Plan, lanes: readonly Lane[], limits: RailLimits): string | undefined {
  const rails = railsOf(plan, lanes, LONG_BYTES, limits);
  if (rails === undefined) return undefined;
  const shares = rails.map(({ candidate, byteLength }) => {
    return `${nameOf(lanes[candidate.lane]!.iface.attributes)} ${Math.round((byteLength / LONG_BYTES) * 100)} %`;
  });
  return `divided from ${2 * limits.chunkBytesMin} bytes on: ${shares.join(', ')}`;
}

function isRail({ lane, protocol }: Candidate, lanes: readonly Lane[]): boolean {
  return protocol === Protocol.ZCOPY && lanes[lane]!.iface.attributes.resource.deviceType === DeviceType.NET;
}

function divide(candidates: readonly Candidate[], byteLength: number): Rail[] {
  const total = candidates.reduce((sum, { perByteNs }) => sum + 1 / perByteNs, 0);
  const rails: Rail[] = [];
  let offset = 0;
  for (const [i, candidate] of candidates.entries()) {
    const share = Math.floor(byteLength / candidate.perByteNs / total / ALIGNMENT) * ALIGNMENT;
    const bytes = i === candidates.length - 1 ? byteLength - offset : share;
    rails.push({ candidate, offset, byteLength: bytes });
    offset += bytes;
  }
  return rails.filter((rail) => rail.byteLength > 0);
}
