/** How far the cards of a context are from the network devices of the machine, for the estimates of ucp. What the distances mean is decided there. */

import type { DistanceOf } from '../ucp/lane/lane-distance.ts';
import { distanceBetween } from '../ucs/sys/topology.ts';
import type { GaudiResources } from '../uct/gaudi/base/gaudi-resources.ts';
import { readTopology, type Topology, type TopologySources } from './topology.ts';

/**
 * The distances by the topology, which is read when the first is asked for and kept: a context opens its devices once. Undefined for a device that is none of the
 * topology, such as loopback or a veth; `unknown` for emulated cards in the machine itself.
 */
export function distancesOf(gaudi: Pick<GaudiResources, 'cards'>, sources: TopologySources): DistanceOf {
  let topology: Topology | undefined;
  return (sysDevice, { device }) => {
    topology ??= readTopology(sources);
    const busId = gaudi.cards.find(({ index }) => index === sysDevice)?.device.busId;
    const card = topology.cards.find(({ entry }) => entry.busId === busId);
    const network = topology.networks.find(({ name }) => name === device);
    return card === undefined || network === undefined ? undefined : distanceBetween(card, network);
  };
}
