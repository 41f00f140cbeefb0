/** Reads and writes the structs of libibverbs that describe devices, ports and queue pairs. */

import type { ScratchBlock } from '../../sys/index.ts';
import { GID_BYTES, QpType } from '../abi.ts';
import type { AddressVector, DeviceAttributes, GidEntry, PortAttributes, QpAttributes, QpInit } from '../port.ts';
import {
  AhAttrLayout,
  DeviceAttrLayout,
  GidEntryLayout,
  PortAttrLayout,
  QpAttrLayout,
  QpAttrMask,
  QpInitLayout,
} from './layouts.ts';

const FIRMWARE_BYTES = 64;
const GID_TYPES = ['ib', 'roce_v1', 'roce_v2'] as const;
/** Bytes per second of a lane, by the bit of active_speed (SDR to NDR), without the overhead of the line encoding. */
const LANE_SPEEDS: ReadonlyMap<number, number> = new Map([
  [1, 0.25e9],
  [2, 0.5e9],
  [4, 1e9],
  [8, 1.212e9],
  [16, 1.705e9],
  [32, 3.125e9],
  [64, 6.25e9],
  [128, 12.5e9],
]);
/** Number of lanes, by the bit of active_width. */
const WIDTHS: ReadonlyMap<number, number> = new Map([
  [1, 1],
  [2, 4],
  [4, 8],
  [8, 12],
  [16, 2],
]);

/** Reads struct ibv_device_attr. */
export function readDeviceAttributes({ view, u8 }: ScratchBlock): DeviceAttributes {
  const int = (offset: number): number => view.getInt32(offset, true);
  const firmware = Buffer.from(u8.slice(DeviceAttrLayout.FW_VER, FIRMWARE_BYTES)).toString('latin1');
  return {
    maxMrSize: Math.min(Number.MAX_SAFE_INTEGER, Number(view.getBigUint64(DeviceAttrLayout.MAX_MR_SIZE, true))),
    maxQp: int(DeviceAttrLayout.MAX_QP),
    maxQpWr: int(DeviceAttrLayout.MAX_QP_WR),
    maxSge: int(DeviceAttrLayout.MAX_SGE),
    maxCq: int(DeviceAttrLayout.MAX_CQ),
    maxCqe: int(DeviceAttrLayout.MAX_CQE),
    maxMr: int(DeviceAttrLayout.MAX_MR),
    maxPd: int(DeviceAttrLayout.MAX_PD),
    maxQpRdAtom: int(DeviceAttrLayout.MAX_QP_RD_ATOM),
    maxQpInitRdAtom: int(DeviceAttrLayout.MAX_QP_INIT_RD_ATOM),
    maxSrq: int(DeviceAttrLayout.MAX_SRQ),
    maxSrqWr: int(DeviceAttrLayout.MAX_SRQ_WR),
    maxSrqSge: int(DeviceAttrLayout.MAX_SRQ_SGE),
    hasAtomics: int(DeviceAttrLayout.ATOMIC_CAP) !== 0,
    physPortCount: view.getUint8(DeviceAttrLayout.PHYS_PORT_CNT),
    firmware: firmware.split('\0')[0]!,
  };
}

/** Reads struct ibv_port_attr. */
export function readPortAttributes({ view }: ScratchBlock): PortAttributes {
  const lanes = WIDTHS.get(view.getUint8(PortAttrLayout.ACTIVE_WIDTH)) ?? 1;
  const speed = LANE_SPEEDS.get(view.getUint8(PortAttrLayout.ACTIVE_SPEED)) ?? 1e9;
  return {
    state: view.getInt32(PortAttrLayout.STATE, true),
    activeMtu: view.getInt32(PortAttrLayout.ACTIVE_MTU, true),
    gidTableLength: view.getInt32(PortAttrLayout.GID_TBL_LEN, true),
    pkeyTableLength: view.getUint16(PortAttrLayout.PKEY_TBL_LEN, true),
    maxMessageBytes: view.getUint32(PortAttrLayout.MAX_MSG_SZ, true),
    lid: view.getUint16(PortAttrLayout.LID, true),
    linkLayer: view.getUint8(PortAttrLayout.LINK_LAYER),
    bytesPerSecond: lanes * speed,
  };
}

/** Reads the struct ibv_gid_entry at a byte of a table, and the number of its port. */
export function readGid({ view, u8 }: ScratchBlock, at: number): GidEntry & { readonly port: number } {
  return {
    port: view.getUint32(at + GidEntryLayout.PORT_NUM, true),
    index: view.getUint32(at + GidEntryLayout.GID_INDEX, true),
    gid: u8.slice(at + GidEntryLayout.GID, at + GidEntryLayout.GID + GID_BYTES),
    type: GID_TYPES[view.getUint32(at + GidEntryLayout.GID_TYPE, true)] ?? 'ib',
  };
}

/** Pointers of the queues of a queue pair; 0 without a shared receive queue. */
export interface QpQueues {
  readonly sendCq: number;
  readonly receiveCq: number;
  readonly srq: number;
}

/** Writes struct ibv_qp_init_attr. */
export function writeQpInit({ view, u8 }: ScratchBlock, init: QpInit, queues: QpQueues): void {
  u8.fill(0, 0, QpInitLayout.BYTES);
  view.setBigUint64(QpInitLayout.SEND_CQ, BigInt(queues.sendCq), true);
  view.setBigUint64(QpInitLayout.RECV_CQ, BigInt(queues.receiveCq), true);
  view.setBigUint64(QpInitLayout.SRQ, BigInt(queues.srq), true);
  view.setUint32(QpInitLayout.MAX_SEND_WR, init.maxSendWr, true);
  view.setUint32(QpInitLayout.MAX_RECV_WR, init.maxReceiveWr, true);
  view.setUint32(QpInitLayout.MAX_SEND_SGE, init.maxSendSge, true);
  view.setUint32(QpInitLayout.MAX_RECV_SGE, init.maxReceiveSge, true);
  view.setUint32(QpInitLayout.MAX_INLINE_DATA, init.maxInlineBytes, true);
  view.setUint32(QpInitLayout.QP_TYPE, init.type, true);
}

/** Writes struct ibv_qp_attr; returns the mask of the valid fields. */
export function writeQpAttributes(scratch: ScratchBlock, attributes: QpAttributes, type: QpType): number {
  const { view } = scratch;
  scratch.u8.fill(0, 0, QpAttrLayout.BYTES);
  let mask: number = QpAttrMask.STATE;
  view.setUint32(QpAttrLayout.QP_STATE, attributes.state, true);
  const word = (value: number | undefined, offset: number, bit: number): void => {
    if (value === undefined) return;
    view.setUint32(offset, value, true);
    mask |= bit;
  };
  const byte = (value: number | undefined, offset: number, bit: number): void => {
    if (value === undefined) return;
    view.setUint8(offset, value);
    mask |= bit;
  };
  word(attributes.pathMtu, QpAttrLayout.PATH_MTU, QpAttrMask.PATH_MTU);
  word(attributes.qkey, QpAttrLayout.QKEY, QpAttrMask.QKEY);
  word(attributes.rqPsn, QpAttrLayout.RQ_PSN, QpAttrMask.RQ_PSN);
  word(attributes.sqPsn, QpAttrLayout.SQ_PSN, QpAttrMask.SQ_PSN);
  word(attributes.destQpNum, QpAttrLayout.DEST_QP_NUM, QpAttrMask.DEST_QPN);
  const accessFlags = type === QpType.UD ? undefined : attributes.accessFlags;
  word(accessFlags, QpAttrLayout.QP_ACCESS_FLAGS, QpAttrMask.ACCESS_FLAGS);
  byte(attributes.pkeyIndex, QpAttrLayout.PKEY_INDEX, QpAttrMask.PKEY_INDEX);
  byte(attributes.port, QpAttrLayout.PORT_NUM, QpAttrMask.PORT);
  byte(attributes.maxRdAtomic, QpAttrLayout.MAX_RD_ATOMIC, QpAttrMask.MAX_QP_RD_ATOMIC);
  byte(attributes.maxDestRdAtomic, QpAttrLayout.MAX_DEST_RD_ATOMIC, QpAttrMask.MAX_DEST_RD_ATOMIC);
  byte(attributes.minRnrTimer, QpAttrLayout.MIN_RNR_TIMER, QpAttrMask.MIN_RNR_TIMER);
  byte(attributes.timeout, QpAttrLayout.TIMEOUT, QpAttrMask.TIMEOUT);
  byte(attributes.retryCount, QpAttrLayout.RETRY_CNT, QpAttrMask.RETRY_CNT);
  byte(attributes.rnrRetry, QpAttrLayout.RNR_RETRY, QpAttrMask.RNR_RETRY);
  if (attributes.path !== undefined) {
    writePath(scratch, QpAttrLayout.AH_ATTR, attributes.path);
    mask |= QpAttrMask.AV;
  }
  return mask;
}

/** Writes struct ibv_ah_attr. */
export function writePath({ view, u8 }: ScratchBlock, at: number, path: AddressVector): void {
  u8.fill(0, at, at + AhAttrLayout.BYTES);
  view.setUint16(at + AhAttrLayout.DLID, path.dlid, true);
  view.setUint8(at + AhAttrLayout.SL, path.serviceLevel);
  view.setUint8(at + AhAttrLayout.PORT_NUM, path.port);
  if (path.gid === undefined) return;
  view.setUint8(at + AhAttrLayout.IS_GLOBAL, 1);
  u8.set(path.gid, at + AhAttrLayout.DGID);
  view.setUint8(at + AhAttrLayout.SGID_INDEX, path.sgidIndex);
  view.setUint8(at + AhAttrLayout.HOP_LIMIT, path.hopLimit);
  view.setUint8(at + AhAttrLayout.TRAFFIC_CLASS, path.trafficClass);
}
