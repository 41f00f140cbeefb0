/** The RDMA devices of this machine, through libibverbs. */

import { allocateScratch, Errno, errnoText, lastErrno, SyscallError, viewAt } from '../../sys/index.ts';
import type { VerbsContext, VerbsDeviceEntry, VerbsPort } from '../port.ts';
import { LibibverbsContext } from './libibverbs-context.ts';
import type { LibibverbsFunctions } from './library.ts';

const POINTER_BYTES = 8;

export class Libibverbs implements VerbsPort {
  readonly emulated = false;
  readonly #functions: LibibverbsFunctions;
  readonly #names: readonly string[] | undefined;
  #why = 'libibverbs did not find any RDMA device: check ibv_devices, or add soft RoCE (rdma link add)';

  /** @param names use only these devices; undefined for all */
  constructor(functions: LibibverbsFunctions, names?: readonly string[]) {
    this.#functions = functions;
    this.#names = names;
  }

  devices(): readonly VerbsDeviceEntry[] {
    return this.#withList((pointers) => {
      const found = pointers.map((pointer) => this.#functions.getDeviceName(pointer));
      const names = found.filter((name) => this.#names?.includes(name) !== false);
      return names.map((name) => ({ name, pciPath: undefined, numaNode: -1 }));
    });
  }

  whyNoDevices(): string {
    return this.#why;
  }

  open(name: string): VerbsContext {
    return this.#withList((pointers) => {
      const device = pointers.find((pointer) => this.#functions.getDeviceName(pointer) === name);
      if (device === undefined) throw new SyscallError('ibv_open_device', Errno.ENODEV, name);
      return new LibibverbsContext(this.#functions, name, device);
    });
  }

  /** Calls the function with the list of devices, which is valid during the call. */
  #withList<T>(use: (pointers: readonly number[]) => T): T {
    using count = allocateScratch(4);
    const list = this.#functions.getDeviceList(count.address);
    if (list === 0) {
      this.#why = `libibverbs cannot list RDMA devices: ${errnoText(lastErrno())}`;
      return use([]);
    }
    try {
      const length = count.view.getInt32(0, true);
      if (length === 0) return use([]);
      const view = new DataView(viewAt(list, length * POINTER_BYTES));
      return use(Array.from({ length }, (_, i) => Number(view.getBigUint64(i * POINTER_BYTES, true))));
    } finally {
      this.#functions.freeDeviceList(list);
    }
  }
}
