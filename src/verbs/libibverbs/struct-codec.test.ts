/** The structs of devices, ports and queue pairs: each field is at its offset, and the mask names the valid ones. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { AccessFlag, QpState, QpType } from '../abi.ts';
import type { AddressVector } from '../port.ts';
import { AhAttrLayout, DeviceAttrLayout, PortAttrLayout, QpAttrLayout, QpAttrMask, QpInitLayout } from './layouts.ts';
import { readDeviceAttributes, readPortAttributes, writeQpAttributes, writeQpInit } from './struct-codec.ts';

const PATH: AddressVector = {
  dlid: 0x1234,
  gid: Uint8Array.from({ length: 16 }, (_, index) => index + 1),
  sgidIndex: 3,
  hopLimit: 64,
  trafficClass: 9,
  serviceLevel: 5,
  port: 2,
};

let scratch: ScratchBlock;
beforeEach(() => {
  scratch = allocateScratch(256);
  scratch.u8.fill(0);
});
afterEach(() => {
  scratch.free();
});

describe('the attributes of a device', () => {
  it('are those of its fields', () => {
    const fields = Object.entries(DeviceAttrLayout).filter(([name]) => name.startsWith('MAX_'));
    for (const [index, [, offset]] of fields.entries()) scratch.view.setInt32(offset, 100 + index, true);
    scratch.view.setInt32(DeviceAttrLayout.ATOMIC_CAP, 1, true);
    scratch.view.setUint8(DeviceAttrLayout.PHYS_PORT_CNT, 2);
    scratch.u8.set(Buffer.from('22.31.1014\0old', 'latin1'));
    const fieldValue = (name: string): number => 100 + fields.findIndex(([each]) => each === name);
    expect(readDeviceAttributes(scratch)).toEqual({
      maxMrSize: fieldValue('MAX_MR_SIZE'),
      maxQp: fieldValue('MAX_QP'),
      maxQpWr: fieldValue('MAX_QP_WR'),
      maxSge: fieldValue('MAX_SGE'),
      maxCq: fieldValue('MAX_CQ'),
      maxCqe: fieldValue('MAX_CQE'),
      maxMr: fieldValue('MAX_MR'),
      maxPd: fieldValue('MAX_PD'),
      maxQpRdAtom: fieldValue('MAX_QP_RD_ATOM'),
      maxQpInitRdAtom: fieldValue('MAX_QP_INIT_RD_ATOM'),
      maxSrq: fieldValue('MAX_SRQ'),
      maxSrqWr: fieldValue('MAX_SRQ_WR'),
      maxSrqSge: fieldValue('MAX_SRQ_SGE'),
      hasAtomics: true,
      physPortCount: 2,
      firmware: '22.31.1014',
    });
  });
});

describe('the speed of a port', () => {
  it.each([
    ['one lane of EDR', 1, 32, 3.125e9],
    ['four lanes of EDR', 2, 32, 12.5e9],
    ['two lanes of NDR', 16, 128, 25e9],
    ['unknown lanes of an unknown speed', 64, 3, 1e9],
  ])('with %s', (_title, width, speed, bytesPerSecond) => {
    scratch.view.setUint8(PortAttrLayout.ACTIVE_WIDTH, width);
    scratch.view.setUint8(PortAttrLayout.ACTIVE_SPEED, speed);
    expect(readPortAttributes(scratch).bytesPerSecond).toBe(bytesPerSecond);
  });
});

describe('a new queue pair', () => {
  it('has the queues and capacities that it is made with', () => {
    scratch.u8.fill(0xff);
    const queue = { close: () => {} } as never;
    const capacities = { maxSendWr: 1, maxReceiveWr: 2, maxSendSge: 3, maxReceiveSge: 4, maxInlineBytes: 5 };
    writeQpInit(
      scratch,
      { type: QpType.RC, sendCq: queue, receiveCq: queue, srq: queue, ...capacities },
      { sendCq: 0x1000, receiveCq: 0x2000, srq: 0x3000 },
    );
    const { SEND_CQ, RECV_CQ, SRQ } = QpInitLayout;
    expect([SEND_CQ, RECV_CQ, SRQ].map((offset) => scratch.view.getBigUint64(offset, true))).toEqual([
      0x1000n,
      0x2000n,
      0x3000n,
    ]);
    const words = new Uint32Array(scratch.u8.slice(QpInitLayout.MAX_SEND_WR, QpInitLayout.BYTES).buffer);
    expect([...words]).toEqual([1, 2, 3, 4, 5, QpType.RC, 0, 0]);
  });
});

describe('the attributes of a queue pair', () => {
  const { STATE, AV, ACCESS_FLAGS, MAX_QP_RD_ATOMIC, MAX_DEST_RD_ATOMIC } = QpAttrMask;

  it('name a path as valid, with all of its fields', () => {
    expect(writeQpAttributes(scratch, { state: QpState.RTR, path: PATH }, QpType.RC)).toBe(STATE | AV);
    const path = scratch.u8.slice(QpAttrLayout.AH_ATTR, QpAttrLayout.AH_ATTR + AhAttrLayout.BYTES);
    const expected = new Uint8Array(AhAttrLayout.BYTES);
    expected.set(PATH.gid!, AhAttrLayout.DGID);
    expected[AhAttrLayout.SGID_INDEX] = 3;
    expected[AhAttrLayout.HOP_LIMIT] = 64;
    expected[AhAttrLayout.TRAFFIC_CLASS] = 9;
    expected.set([0x34, 0x12], AhAttrLayout.DLID);
    expected[AhAttrLayout.SL] = 5;
    expected[AhAttrLayout.IS_GLOBAL] = 1;
    expected[AhAttrLayout.PORT_NUM] = 2;
    expect(path).toEqual(expected);
  });

  it.each([
    ['of connections have access flags', QpType.RC, STATE | ACCESS_FLAGS, AccessFlag.REMOTE_READ],
    ['of datagrams have none', QpType.UD, STATE, 0],
  ])('%s', (_title, type, mask, flags) => {
    const attributes = { state: QpState.INIT, accessFlags: AccessFlag.REMOTE_READ };
    expect(writeQpAttributes(scratch, attributes, type)).toBe(mask);
    expect(scratch.view.getUint32(QpAttrLayout.QP_ACCESS_FLAGS, true)).toBe(flags);
  });

  it('tell reads in flight from reads that are served', () => {
    expect(writeQpAttributes(scratch, { state: QpState.RTS, maxRdAtomic: 7 }, QpType.RC)).toBe(
      STATE | MAX_QP_RD_ATOMIC,
    );
    expect(scratch.view.getUint8(QpAttrLayout.MAX_RD_ATOMIC)).toBe(7);
    expect(writeQpAttributes(scratch, { state: QpState.RTR, maxDestRdAtomic: 8 }, QpType.RC)).toBe(
      STATE | MAX_DEST_RD_ATOMIC,
    );
    expect(scratch.view.getUint8(QpAttrLayout.MAX_DEST_RD_ATOMIC)).toBe(8);
  });
});
