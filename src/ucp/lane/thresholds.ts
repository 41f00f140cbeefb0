/** Sizes at which operations change their protocol, and the scheme of a rendezvous, from the configuration. It chooses no protocol. */

import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { RendezvousScheme, UcpConfig } from '../resources/config.ts';
import type { RailLimits } from './rails.ts';

/** Schemes of UCX that the native engine has no protocol for. */
const ABSENT: Partial<Record<RendezvousScheme, string>> = {
  get_ppln: 'receivers read whole messages, not windows of them',
  rkey_ptr: 'no transport hands out pointers to memory of a peer',
};

/** Sizes in bytes of operations of the application. */
export interface Thresholds {
  /** Messages of at least this length are sent by rendezvous, to peers on this node and to others; Infinity if only the length of a frame decides. */
  readonly rendezvousIntra: number;
  readonly rendezvousInter: number;
  /** Messages of at least this length are copied before they are sent; Infinity if the transport decides. */
  readonly bcopy: number;
  /** Puts and gets of at least this length use zero copy, shorter ones do not, if there is a choice; undefined if the estimates decide. */
  readonly zcopy: number | undefined;
  /** Puts and gets that no lane can move are moved by the workers of both ends. */
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
    bytes === undefined || bytes === 'auto' ? Number.POSITIVE_INFINITY : bytes;
  return {
    rendezvousIntra: orFrame(RNDV_THRESH.intra ?? RNDV_THRESH.default),
    rendezvousInter: orFrame(RNDV_THRESH.inter ?? RNDV_THRESH.default),
    bcopy: orFrame(BCOPY_THRESH),
    zcopy: ZCOPY_THRESH === 'auto' ? undefined : ZCOPY_THRESH,
    isEmulating: PROTO_EMULATION_ENABLE,
  };
}

/** The limits for dividing long transfers between devices; one device with UCX_SINGLE_NET_DEVICE. */
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
 * The scheme of a configuration.
 * @throws UcxError ERR_CONFIG_VALUE for a scheme that libucp has and this engine has not
 */
export function schemeOf({ RNDV_SCHEME: value }: UcpConfig): RendezvousScheme {
  const why = ABSENT[value];
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
