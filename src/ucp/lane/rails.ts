/**
 * Rails: a long transfer over networks is divided between the devices that reach the peer, in proportion to their bandwidth. Transports within a host are
 * not divided, because the same processors would do the work. Also reads from the configuration the thresholds of protocols and the scheme of a
 * rendezvous.
 */

import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { DeviceType } from '../../uct/api/iface.ts';
import { type Candidate, candidateFor, type Plan, Protocol } from '../proto/selection.ts';
import type { RendezvousScheme, UcpConfig } from '../resources/config.ts';
import { type Lane, nameOf } from './lanes.ts';

/** Alignment of the parts of a divided transfer, in bytes. */
const ALIGNMENT = 64;

/** Limits for dividing transfers. */
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

/** A size for which all shares are long enough: beyond it, shares do not depend on the size. */
const LONG_BYTES: number = 2 ** 40;

/** The note of explanations on how a plan divides long transfers; undefined if one lane carries all of them. */
export function divisionNote(plan: Plan, lanes: readonly Lane[], limits: RailLimits): string | undefined {
  const rails = railsOf(plan, lanes, LONG_BYTES, limits);
  if (rails === undefined) return undefined;
  const shares = rails.map(({ candidate, byteLength }) => {
    return `${nameOf(lanes[candidate.lane]!.iface.attributes)} ${Math.round((byteLength / LONG_BYTES) * 100)} %`;
  });
  return `divided at ${2 * limits.chunkBytesMin} bytes and more: ${shares.join(', ')}`;
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

/** Schemes of UCX that the native engine does not implement, with the reasons. */
const UNSUPPORTED_SCHEMES: Partial<Record<RendezvousScheme, string>> = {
  get_ppln: 'receivers read whole messages, not windows of them',
  rkey_ptr: 'a receiver has no direct access to the memory of a sender; the engine libucx has',
};

/** Thresholds in bytes for operations of the application. */
export interface Thresholds {
  /** Rendezvous thresholds, for peers on this node and for others; Infinity for `auto`; for `inf` a length that no message has. */
  readonly rendezvousIntra: number;
  readonly rendezvousInter: number;
  /** Threshold of copying messages before they are sent; Infinity if the transport decides. */
  readonly bcopy: number;
  /** Threshold of zero copy for puts and gets, if there is a choice; undefined to choose by cost. */
  readonly zcopy: number | undefined;
  /** True if the workers of both sides move the bytes of puts and gets that no lane can move. */
  readonly isEmulating: boolean;
}

/** The thresholds of a configuration. */
export function thresholdsOf({
  RNDV_THRESH,
  BCOPY_THRESH,
  ZCOPY_THRESH,
  PROTO_EMULATION_ENABLE,
}: UcpConfig): Thresholds {
  const orFrame = (bytes: number | 'auto' | undefined): number =>
    bytes === undefined || bytes === 'auto' ? Number.POSITIVE_INFINITY : Math.min(bytes, Number.MAX_SAFE_INTEGER);
  return {
    rendezvousIntra: orFrame(RNDV_THRESH.intra ?? RNDV_THRESH.default),
    rendezvousInter: orFrame(RNDV_THRESH.inter ?? RNDV_THRESH.default),
    bcopy: orFrame(BCOPY_THRESH),
    zcopy: ZCOPY_THRESH === 'auto' ? undefined : ZCOPY_THRESH,
    isEmulating: PROTO_EMULATION_ENABLE,
  };
}

/** Limits for dividing long transfers between devices; a single device with UCX_SINGLE_NET_DEVICE. */
export function railsOfConfig(config: UcpConfig): { readonly rendezvous: RailLimits; readonly rma: RailLimits } {
  const { SINGLE_NET_DEVICE, MAX_RNDV_RAILS, MIN_RNDV_CHUNK_SIZE, MAX_RMA_RAILS, MIN_RMA_CHUNK_SIZE } = config;
  const bandwidthRatioMax = config.MULTI_LANE_MAX_RATIO;
  const railsMax = (count: number): number => (SINGLE_NET_DEVICE ? 1 : count);
  return {
    rendezvous: { railsMax: railsMax(MAX_RNDV_RAILS), chunkBytesMin: MIN_RNDV_CHUNK_SIZE, bandwidthRatioMax },
    rma: { railsMax: railsMax(MAX_RMA_RAILS), chunkBytesMin: MIN_RMA_CHUNK_SIZE, bandwidthRatioMax },
  };
}

/**
 * The rendezvous scheme of a configuration.
 * @throws UcxError ERR_CONFIG_VALUE for a scheme that libucp has and this engine does not
 */
export function schemeOf({ RNDV_SCHEME: value }: UcpConfig): RendezvousScheme {
  const why = UNSUPPORTED_SCHEMES[value];
  if (why === undefined) return value;
  const variable = 'UCX_RNDV_SCHEME';
  const rule = 'auto, get_zcopy, put_zcopy, put_ppln or am with the native engine';
  throw new UcxError({
    code: 'ERR_CONFIG_VALUE',
    status: Status.INVALID_PARAM,
    message: `${variable} must be ${rule}, got "${value}": ${why}`,
    details: { variable, rule, value },
  });
}
