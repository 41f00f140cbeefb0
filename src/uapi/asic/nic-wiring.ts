/**
 * Connections between the NIC ports of the cards, in servers whose wiring is public. The driver reports link states.
 *
 * HLS-2 (eight Gaudi2 on a baseboard): hcl/src/platform/gaudi2/connectivity_autogen_HLS2.cpp of the vendor's collective library. Cards are identified by
 * OCP module id. Scale-up ports form seven groups of three; each group connects to one other card.
 */

import { HL_SERVER_TYPE } from '../ioctl/device-status.ts';

/** The far end of a scale-up port. */
export interface WiredPort {
  readonly moduleId: number;
  readonly port: number;
}

/** Cards in an HLS-2 server. */
export const HLS2_CARDS = 8;
/** Ports by group; the three missing ones (8, 22, 23) connect outside the server. */
const HLS2_GROUPS: readonly (readonly number[])[] = [
  [0, 1, 3],
  [2, 4, 5],
  [6, 7, 9],
  [10, 11, 12],
  [13, 14, 15],
  [16, 17, 18],
  [19, 20, 21],
];
/** By module id: the module that each group connects to. */
const HLS2_PEERS: readonly (readonly number[])[] = [
  [3, 7, 4, 2, 1, 6, 5],
  [2, 6, 5, 7, 0, 3, 4],
  [1, 5, 6, 3, 4, 0, 7],
  [0, 4, 7, 2, 5, 1, 6],
  [7, 3, 0, 5, 2, 6, 1],
  [6, 2, 1, 4, 3, 7, 0],
  [5, 1, 2, 4, 7, 0, 3],
  [4, 0, 3, 1, 6, 5, 2],
];

/**
 * The far end of a port; undefined for a port that connects outside the server, and if the wiring of the server is not public.
 * @param serverType one of HL_SERVER_TYPE
 */
export function wiredPort(serverType: number, moduleId: number, port: number): WiredPort | undefined {
  if (serverType !== HL_SERVER_TYPE.GAUDI2_HLS2) return undefined;
  const group = HLS2_GROUPS.findIndex((ports) => ports.includes(port));
  const peer = HLS2_PEERS[moduleId]?.[group];
  if (peer === undefined) return undefined;
  const back = HLS2_GROUPS[HLS2_PEERS[peer]!.indexOf(moduleId)]!;
  return { moduleId: peer, port: back[HLS2_GROUPS[group]!.indexOf(port)]! };
}
