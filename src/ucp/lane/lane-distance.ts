/** The distance of a lane from the memory whose bytes it moves, for estimates. It reads no topology: the distances are parameters. */

import type { Distance } from '../../ucs/sys/topology.ts';
import { DeviceType, type IfaceResource } from '../../uct/api/iface.ts';
import type { Lane } from './lane.ts';

/**
 * The path between a device that has memory, by its index in this context, and the device of a transport (ucs_topo_get_distance); undefined if the
 * location of either is unknown.
 */
export type DistanceOf = (sysDevice: number, resource: IfaceResource) => Distance | undefined;

/**
 * The path from a lane to device memory; undefined if it is negligible. Networks only: the attributes of other transports already describe the path to
 * the memory that they reach.
 * @param near the device that the bytes come from or go to, also where they pass through host memory; undefined for none
 */
export function laneDistance(
  distanceOf: DistanceOf,
  { iface: { attributes } }: Pick<Lane, 'iface'>,
  near: number | undefined,
): LaneDistance | undefined {
  const { resource } = attributes;
  if (near === undefined || resource.deviceType !== DeviceType.NET) return undefined;
  const distance = distanceOf(near, resource);
  return distance === undefined || distance.kind === 'unknown' ? undefined : { ...distance, to: near };
}

/** The path, and the device at its other end. */
export interface LaneDistance extends Distance {
  readonly to: number;
}
