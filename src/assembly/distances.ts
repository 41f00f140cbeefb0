/** Distances between the cards of a context and the network devices of the machine, for the estimates of ucp, which interprets them. */

import type { DistanceOf } from '../ucp/lane/lane-distance.ts';
import { distanceBetween } from '../ucs/sys/topology.ts';
import type { GaudiResources } from '../uct/gaudi/base/gaudi-resources.ts';
import { readTopology, type Topology, type TopologySources } from './topology.ts';

/**
 * The distances from the topology, which is read at first use and kept: a context opens its devices once. Undefined for a device outside the
 * topology, such as loopback or a veth; `unknown` between emulated cards, which have no location in the machine, and devices of the machine.
 */
export function distancesOf(gaudi: Pick<GaudiResources, 'cards'>, sources: TopologySources): DistanceOf {
  let topology: Topology | undefined;
  return (sysDevice, { device }) => {
    topology ??= readTopology(sources);
    const busId = gaudi.cards.find(({ index }) => index === sysDevice)?.device.busId;
    const card = topology.cards.find(({ entry }) => entry.busId === busId);
    // A transport names the port of an RDMA device too.
    const network = topology.networks.find(({ name }) => name === device || name === device.replace(/:\d+$/, ''));
    return card === undefined || network === undefined ? undefined : distanceBetween(card, network);
  };
}
