/** The component cma (cross-memory attach) and its memory domain: any host memory, which the kernel copies between the processes of a host. */

import { close as closeFd, Errno, isSyscallError, outlivesThread, ownIdentity, pidfdOpen } from '../../../sys/index.ts';
import { MemoryType, memoryTypeBit } from '../../../ucs/memory/memory-type.ts';
import { describeValue, UcxError } from '../../../ucs/type/error.ts';
import { highOf, joinWords } from '../../../ucs/type/int64.ts';
import { Status } from '../../../ucs/type/status.ts';
import { DeviceType, type IfaceResource } from '../../api/iface.ts';
import {
  type AllocateOptions,
  type Component,
  type ComponentServices,
  type MdAttributes,
  MdFlag,
} from '../../api/memory-domain.ts';
import { checkServices } from '../../base/checks.ts';
import { unsupported } from '../../base/host/domain.ts';
import type { HostMemory } from '../../base/host/memory.ts';
import { RKEY_TABLE_KEY_BYTES } from '../../base/key/rkey-table.ts';
import { scavenge } from '../../base/key/segment.ts';
import { TableDomain } from '../base/table-domain.ts';
import { CMA_CONFIG_TABLE } from './config.ts';
import { CMA_NAME, CmaKey } from './endpoint.ts';
import { accessRefusal, CmaIface } from './iface.ts';

/** Other names of the transport. */
const CMA_ALIASES: readonly string[] = ['shm', 'sm'];

/** Upper bound of user addresses. */
const ADDRESS_MAX = 2 ** 47;
const HOST: number = memoryTypeBit(MemoryType.HOST);

const RESOURCE: IfaceResource = {
  transport: CMA_NAME,
  aliases: CMA_ALIASES,
  device: 'memory',
  deviceType: DeviceType.SHM,
  sysDevice: undefined,
};

export class CmaMd extends TableDomain {
  readonly resources: readonly IfaceResource[] = [RESOURCE];
  readonly attributes: MdAttributes = {
    name: CMA_NAME,
    component: CMA_NAME,
    flags:
      MdFlag.REG | MdFlag.NEED_RKEY | MdFlag.INVALIDATE | MdFlag.ADVISE | MdFlag.PINS_PAGES | MdFlag.PUBLISHES_KEYS,
    registerMemoryTypes: HOST,
    allocateMemoryTypes: 0,
    accessMemoryTypes: HOST,
    detectMemoryTypes: 0,
    dmabufMemoryTypes: 0,
    cacheMemoryTypes: 0,
    registerCost: { overheadNs: 9, perByteNs: 0 },
    rkeyPackedBytes: RKEY_TABLE_KEY_BYTES,
    allocateBytesMax: 0,
    registerBytesMax: Number.MAX_SAFE_INTEGER,
  };
  readonly #services: ComponentServices;

  /** @throws UcxError NO_DEVICE with the reason if the kernel cannot copy between processes */
  constructor(services: ComponentServices) {
    super(CMA_NAME, outlivesThread);
    this.#services = services;
    const refusal = machineRefusal();
    if (refusal !== undefined)
      throw new UcxError({ code: 'ERR_NO_DEVICE', status: Status.NO_DEVICE, message: refusal });
    scavenge();
  }

  memAlloc(byteLength: number, options: AllocateOptions): HostMemory {
    throw unsupported(
      `memAlloc: memory domain cma cannot allocate memory (${describeValue(byteLength)} bytes of type ${describeValue(options?.memoryType)})`,
    );
  }

  rkeyUnpack(packed: Uint8Array): CmaKey {
    this.checkOpen();
    const published = this.reader.open(packed);
    const { payload } = published;
    const location = joinWords(payload[0]!, payload[1]!);
    if (location + published.byteLength <= ADDRESS_MAX) return new CmaKey(published, location);
    published.release();
    throw new UcxError({
      code: 'ERR_RKEY_FORGED',
      status: Status.INVALID_ADDR,
      message: `remote key of ${CMA_NAME} contains an invalid address`,
      details: { md: CMA_NAME },
    });
  }

  /** The address. It is not part of the packed key, and becomes invalid when the key is revoked. */
  protected payloadOf({ location }: HostMemory): Int32Array {
    return Int32Array.of(location, highOf(location));
  }

  protected makeIface(): CmaIface {
    return new CmaIface(RESOURCE, this.#services);
  }
}

/** The reason why this machine cannot copy between processes; undefined if it can. */
function machineRefusal(): string | undefined {
  const { pid } = ownIdentity();
  try {
    closeFd(pidfdOpen(pid));
  } catch (error) {
    if (!isSyscallError(error, Errno.ENOSYS)) throw error;
    return 'this kernel has no pidfd_open: cma needs Linux 5.3';
  }
  return accessRefusal(pid);
}

/** The component `cma`. */
export function cmaComponent(): Component {
  return {
    name: CMA_NAME,
    transports: [{ name: CMA_NAME, aliases: CMA_ALIASES }],
    isReplaceable: true,
    configTable: CMA_CONFIG_TABLE,
    openMd: (services) => {
      checkServices(services);
      return new CmaMd(services);
    },
  };
}
