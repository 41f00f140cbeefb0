/**
 * The address of an ib interface: the location of its port, and the queue pair that replies to connection requests. Addresses from peers are validated.
 *
 * Layout, little-endian: u32 kind and version, u8 link layer, u8 MTU, u8 index of the device, u8 0, u16 LID, u16 0, u32 queue pair, u32 Q_Key, u32 longest
 * message, 16 bytes GID, 16 bytes interface id, 16 bytes boot id, u32 network namespace.
 */

import { bootId, networkNamespace } from '../../../sys/index.ts';
import { GID_BYTES, LinkLayer } from '../../../verbs/abi.ts';
import { DEVICES_MAX } from '../base/key.ts';

/** Bytes of an interface id. */
export const ID_BYTES = 16;
/** Bytes of a packed address. */
export const IB_ADDRESS_BYTES = 76;

const ADDRESS_KIND = 0x0162_6961;
const AT_LINK_LAYER = 4;
const AT_MTU = 5;
const AT_DEVICE = 6;
const AT_LID = 8;
const AT_QP = 12;
const AT_QKEY = 16;
const AT_SEG_SIZE = 20;
const AT_GID = 24;
const AT_ID = 40;
const AT_BOOT = 56;
const AT_NAMESPACE = 72;
const MTU_MAX = 5;

/** The fields of an address. */
export interface IbAddress {
  readonly linkLayer: number;
  readonly mtu: number;
  /** Index of its device at the peer: index of its keys. */
  readonly deviceIndex: number;
  readonly lid: number;
  readonly qpNum: number;
  readonly qkey: number;
  readonly segBytes: number;
  readonly gid: Uint8Array;
  readonly id: Uint8Array;
}

/** Packs the address of an interface of this process. */
export function packIbAddress(address: IbAddress): Uint8Array {
  const packed = new Uint8Array(IB_ADDRESS_BYTES);
  const view = new DataView(packed.buffer);
  view.setUint32(0, ADDRESS_KIND, true);
  view.setUint8(AT_LINK_LAYER, address.linkLayer);
  view.setUint8(AT_MTU, address.mtu);
  view.setUint8(AT_DEVICE, address.deviceIndex);
  view.setUint16(AT_LID, address.lid, true);
  view.setUint32(AT_QP, address.qpNum, true);
  view.setUint32(AT_QKEY, address.qkey, true);
  view.setUint32(AT_SEG_SIZE, address.segBytes, true);
  packed.set(address.gid, AT_GID);
  packed.set(address.id, AT_ID);
  packed.set(bootId(), AT_BOOT);
  view.setUint32(AT_NAMESPACE, networkNamespace(), true);
  return packed;
}

/** Unpacks an address; undefined if the bytes are not a valid address of this version. */
export function unpackIbAddress(packed: Uint8Array): IbAddress | undefined {
  if (!(packed instanceof Uint8Array) || packed.byteLength !== IB_ADDRESS_BYTES) return undefined;
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const address: IbAddress = {
    linkLayer: view.getUint8(AT_LINK_LAYER),
    mtu: view.getUint8(AT_MTU),
    deviceIndex: view.getUint8(AT_DEVICE),
    lid: view.getUint16(AT_LID, true),
    qpNum: view.getUint32(AT_QP, true),
    qkey: view.getUint32(AT_QKEY, true),
    segBytes: view.getUint32(AT_SEG_SIZE, true),
    gid: packed.slice(AT_GID, AT_GID + GID_BYTES),
    id: packed.slice(AT_ID, AT_ID + ID_BYTES),
  };
  const isSound =
    view.getUint32(0, true) === ADDRESS_KIND &&
    address.mtu >= 1 &&
    address.mtu <= MTU_MAX &&
    address.deviceIndex < DEVICES_MAX &&
    address.qpNum < 2 ** 24;
  return isSound ? address : undefined;
}

/** Whether an address, which must be valid, is of an interface on this node. */
export function isOnThisNode(packed: Uint8Array): boolean {
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const isOwnBoot = Buffer.compare(packed.subarray(AT_BOOT, AT_NAMESPACE), bootId()) === 0;
  return isOwnBoot && view.getUint32(AT_NAMESPACE, true) === networkNamespace();
}

/** The reason why a port cannot reach another one, as text for users; undefined if it can, as far as the addresses show. */
export function ibUnreachableReason(own: IbAddress, peer: IbAddress): string | undefined {
  if (own.linkLayer !== peer.linkLayer) return 'the peer is on another link layer (InfiniBand or Ethernet)';
  if (own.segBytes !== peer.segBytes) {
    return `the message size of the peer is ${peer.segBytes}, that of this process ${own.segBytes}: set UCX_IB_SEG_SIZE to the same value at both ends`;
  }
  if (own.linkLayer !== LinkLayer.INFINIBAND) return undefined;
  const prefixes = [own.gid, peer.gid].map((gid) => gid.subarray(0, GID_BYTES / 2));
  return Buffer.compare(prefixes[0]!, prefixes[1]!) === 0 ? undefined : 'the peer is on another InfiniBand subnet';
}
