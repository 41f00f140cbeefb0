/** A protection domain of an open device, and the objects created in it: memory regions, address handles, shared receive queues, queue pairs. */

import { Errno, SyscallError, viewAt } from '../../sys/index.ts';
import type {
  AddressHandle,
  AddressVector,
  MemoryRegion,
  ProtectionDomain,
  QpInit,
  QueuePair,
  SharedReceiveQueue,
} from '../port.ts';
import { MrLayout, QpInitLayout, SrqInitLayout } from './layouts.ts';
import { Destroyable, type Device, pointerOf } from './library.ts';
import { type Cq, Qp, Srq } from './queues.ts';
import { writePath, writeQpInit } from './struct-codec.ts';

class Mr extends Destroyable implements MemoryRegion {
  readonly lkey: number;
  readonly rkey: number;

  constructor(pointer: number, destroy: (pointer: number) => number) {
    super(pointer, destroy);
    const view = new DataView(viewAt(pointer, MrLayout.BYTES));
    this.lkey = view.getUint32(MrLayout.LKEY, true);
    this.rkey = view.getUint32(MrLayout.RKEY, true);
  }
}

class Ah extends Destroyable implements AddressHandle {
  get handle(): number {
    return this.pointer;
  }
}

export class Pd extends Destroyable implements ProtectionDomain {
  readonly #device: Device;

  constructor(device: Device, pointer: number) {
    super(pointer, device.functions.deallocPd);
    this.#device = device;
  }

  regMr(address: number, byteLength: number, iova: number, access: number): MemoryRegion {
    const { functions } = this.#device;
    const mr = functions.regMrIova2(this.pointer, address, byteLength, iova, access);
    return new Mr(
      pointerOf(mr, 'ibv_reg_mr', `${byteLength} bytes, which count as locked memory (ulimit -l)`),
      functions.deregMr,
    );
  }

  regDmabufMr(fd: number, offset: number, byteLength: number, iova: number, access: number): MemoryRegion {
    const { functions } = this.#device;
    if (functions.regDmabufMr === undefined) {
      throw new SyscallError('ibv_reg_dmabuf_mr', Errno.EOPNOTSUPP, 'libibverbs is older than rdma-core v34');
    }
    const mr = functions.regDmabufMr(this.pointer, offset, byteLength, iova, fd, access);
    return new Mr(pointerOf(mr, 'ibv_reg_dmabuf_mr', `${byteLength} bytes of descriptor ${fd}`), functions.deregMr);
  }

  createSrq(maxWr: number, maxSge: number): SharedReceiveQueue {
    const { functions, scratch } = this.#device;
    scratch.u8.fill(0, 0, SrqInitLayout.BYTES);
    scratch.view.setUint32(SrqInitLayout.MAX_WR, maxWr, true);
    scratch.view.setUint32(SrqInitLayout.MAX_SGE, maxSge, true);
    const srq = functions.createSrq(this.pointer, scratch.address);
    return new Srq(this.#device, pointerOf(srq, 'ibv_create_srq', `${maxWr} receives`));
  }

  createQp(init: QpInit): QueuePair {
    const { functions, scratch } = this.#device;
    writeQpInit(scratch, init, {
      sendCq: (init.sendCq as Cq).pointer,
      receiveCq: (init.receiveCq as Cq).pointer,
      srq: init.srq === undefined ? 0 : (init.srq as Srq).pointer,
    });
    const qp = pointerOf(functions.createQp(this.pointer, scratch.address), 'ibv_create_qp', `${init.maxSendWr} sends`);
    return new Qp(this.#device, qp, init.type, scratch.view.getUint32(QpInitLayout.MAX_INLINE_DATA, true));
  }

  createAh(path: AddressVector): AddressHandle {
    const { functions, scratch } = this.#device;
    writePath(scratch, 0, path);
    return new Ah(
      pointerOf(functions.createAh(this.pointer, scratch.address), 'ibv_create_ah', ''),
      functions.destroyAh,
    );
  }
}
