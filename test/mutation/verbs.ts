/** Faults in the binding of libibverbs. */

import type { Area } from './fault.ts';

export const VERBS: Area = {
  name: 'verbs',
  suites: ['src/verbs', 'test/rdma'],
  faults: [
    {
      file: 'src/verbs/libibverbs/struct-codec.ts',
      before: ".split('\\0')[0]!",
      after: '',
      breaks: 'the version of firmware ends at its zero',
    },
    {
      file: 'src/verbs/libibverbs/struct-codec.ts',
      before: 'maxSge: int(DeviceAttrLayout.MAX_SGE)',
      after: 'maxSge: int(DeviceAttrLayout.MAX_SRQ_SGE)',
      breaks: 'a device has its own number of list entries',
    },
    {
      file: 'src/verbs/libibverbs/struct-codec.ts',
      before: 'bytesPerSecond: lanes * speed',
      after: 'bytesPerSecond: speed',
      breaks: 'a port has several lanes',
    },
    {
      file: 'src/verbs/libibverbs/struct-codec.ts',
      before: 'mask |= QpAttrMask.AV;',
      after: '',
      breaks: 'a path is a valid field',
    },
    {
      file: 'src/verbs/libibverbs/struct-codec.ts',
      before: 'type === QpType.UD ? undefined : attributes.accessFlags',
      after: 'attributes.accessFlags',
      breaks: 'datagram queue pairs have no access flags',
    },
    {
      file: 'src/verbs/libibverbs/struct-codec.ts',
      before: 'view.setUint8(at + AhAttrLayout.SGID_INDEX, path.sgidIndex);',
      after: 'view.setUint8(at + AhAttrLayout.SGID_INDEX, path.hopLimit);',
      breaks: 'a path has its own GID',
    },
    {
      file: 'src/verbs/libibverbs/struct-codec.ts',
      before: 'QpAttrMask.MAX_QP_RD_ATOMIC);',
      after: 'QpAttrMask.MAX_DEST_RD_ATOMIC);',
      breaks: 'reads in flight are not reads served',
    },
    {
      file: 'src/verbs/libibverbs/struct-codec.ts',
      before: 'view.setBigUint64(QpInitLayout.SRQ, BigInt(queues.srq), true);',
      after: '',
      breaks: 'a queue pair receives from its shared queue',
    },
    {
      file: 'src/verbs/libibverbs/queues.ts',
      before: 'functions.ackCqEvents(Number(view.getBigUint64(0, true)), 1);',
      after: 'view.getBigUint64(0, true);',
      breaks: 'events of a queue are acknowledged',
    },
    {
      file: 'src/verbs/libibverbs/queues.ts',
      before: 'this.#block = block;\n      this.#byOffset.clear();',
      after: 'this.#block = block;',
      breaks: 'another block has other addresses',
    },
    {
      file: 'src/verbs/libibverbs/queues.ts',
      before: 'this.state = attributes.state;',
      after: '',
      breaks: 'a queue pair knows its state',
    },
    {
      file: 'src/verbs/libibverbs/library.ts',
      before: 'if (this.#closed) return;\n    this.#closed = true;\n    this.#destroy',
      after: 'this.#destroy',
      breaks: 'an object is destroyed once',
    },
    {
      file: 'src/verbs/libibverbs/library.ts',
      before: 'errno < 0 ? -errno : errno',
      after: 'errno',
      breaks: 'an errno is positive',
    },
    {
      file: 'src/verbs/libibverbs/libibverbs.ts',
      before: 'this.#functions.freeDeviceList(list);',
      after: '',
      breaks: 'the list of devices is freed',
    },
    {
      file: 'src/verbs/libibverbs/libibverbs-context.ts',
      before: 'functions.ackAsyncEvent(scratch.address);',
      after: '',
      breaks: 'events of a device are acknowledged',
    },
    {
      file: 'src/verbs/libibverbs/libibverbs-context.ts',
      before: 'getUint16(0, false)',
      after: 'getUint16(0, true)',
      breaks: 'partition keys are in network byte order',
    },
    {
      file: 'src/verbs/libibverbs/libibverbs-context.ts',
      before: 'entry.port === port',
      after: 'true',
      breaks: 'GIDs are of the port',
    },
    {
      file: 'src/verbs/libibverbs/libibverbs-context.ts',
      before: 'this.#device.functions.closeDevice(this.#device.context);',
      after: '',
      breaks: 'a device is closed',
    },
    {
      file: 'src/verbs/libibverbs/protection-domain.ts',
      before: 'regMrIova2(this.pointer, address, byteLength, iova, access)',
      after: 'regMrIova2(this.pointer, address, iova, byteLength, access)',
      breaks: 'a region has its length',
    },
  ],
};
