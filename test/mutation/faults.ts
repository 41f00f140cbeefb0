/** All faults, by area. */

import { ASSEMBLY } from './assembly.ts';
import { ASSEMBLY_INSPECT } from './assembly-inspect.ts';
import { COLL } from './coll.ts';
import { DRIVER_BASE } from './driver-base.ts';
import { DRIVER_INFO } from './driver-info.ts';
import { DRIVER_IOCTL } from './driver-ioctl.ts';
import { DRIVER_MEMORY } from './driver-memory.ts';
import { DRIVER_SIGNALS } from './driver-signals.ts';
import { DRIVER_SUBMISSION } from './driver-submission.ts';
import { DRIVER_SUBMIT } from './driver-submit.ts';
import { EMULATOR_CHANNELS } from './emulator-channels.ts';
import { EMULATOR_PARTS } from './emulator-parts.ts';
import { EMULATOR_SYSFS } from './emulator-sysfs.ts';
import type { Area } from './fault.ts';
import { GAUDI_BASE } from './gaudi-base.ts';
import { GAUDI_COPY } from './gaudi-copy.ts';
import { GAUDI_IPC } from './gaudi-ipc.ts';
import { HLTHUNK_CHANNELS } from './hlthunk-channels.ts';
import { HLTHUNK_DMA } from './hlthunk-dma.ts';
import { HLTHUNK_MEMORY } from './hlthunk-memory.ts';
import { HLTHUNK_OPEN } from './hlthunk-open.ts';
import { HLTHUNK_QUEUE } from './hlthunk-queue.ts';
import { HLTHUNK_SUBMISSION } from './hlthunk-submission.ts';
import { IB_BASE } from './ib-base.ts';
import { IB_CONNECT } from './ib-connect.ts';
import { IB_CONNECTION } from './ib-connection.ts';
import { IB_ENDPOINT } from './ib-endpoint.ts';
import { LIBUCX } from './libucx.ts';
import { POSIX_DIRECTORY } from './posix-directory.ts';
import { POSIX_ENDPOINT } from './posix-endpoint.ts';
import { POSIX_RING } from './posix-ring.ts';
import { SYS_BASE } from './sys-base.ts';
import { SYS_EVENT } from './sys-event.ts';
import { SYS_FILE } from './sys-file.ts';
import { SYS_MEMORY } from './sys-memory.ts';
import { SYS_PROCESS } from './sys-process.ts';
import { SYS_SOCKET } from './sys-socket.ts';
import { TCP_BASE } from './tcp-base.ts';
import { TCP_CM } from './tcp-cm.ts';
import { TCP_CONNECT } from './tcp-connect.ts';
import { TCP_CONNECTION } from './tcp-connection.ts';
import { TCP_FRAMES } from './tcp-frames.ts';
import { TOOLS_RUNS } from './tools-runs.ts';
import { TOOLS_VALUES } from './tools-values.ts';
import { TOOLS_VIEWS } from './tools-views.ts';
import { UCP } from './ucp.ts';
import { UCP_CONNECTIONS } from './ucp-connections.ts';
import { UCP_MESSAGES } from './ucp-messages.ts';
import { UCP_RNDV } from './ucp-rndv.ts';
import { UCP_TRANSFER } from './ucp-transfer.ts';
import { UCS } from './ucs.ts';
import { UCS_BASE } from './ucs-base.ts';
import { UCS_RCACHE } from './ucs-rcache.ts';
import { UCS_RECORDS } from './ucs-records.ts';
import { UCT_BASE } from './uct-base.ts';
import { VERBS } from './verbs.ts';

export const AREAS: readonly Area[] = [
  UCP,
  UCP_TRANSFER,
  UCP_RNDV,
  UCP_MESSAGES,
  UCP_CONNECTIONS,
  LIBUCX,
  COLL,
  POSIX_RING,
  POSIX_DIRECTORY,
  POSIX_ENDPOINT,
  TCP_CONNECTION,
  TCP_FRAMES,
  UCT_BASE,
  HLTHUNK_CHANNELS,
  EMULATOR_CHANNELS,
  HLTHUNK_DMA,
  HLTHUNK_QUEUE,
  HLTHUNK_SUBMISSION,
  DRIVER_SUBMISSION,
  DRIVER_SUBMIT,
  DRIVER_IOCTL,
  GAUDI_BASE,
  GAUDI_COPY,
  DRIVER_MEMORY,
  DRIVER_BASE,
  IB_ENDPOINT,
  IB_CONNECTION,
  DRIVER_INFO,
  DRIVER_SIGNALS,
  TOOLS_VALUES,
  TOOLS_VIEWS,
  ASSEMBLY,
  ASSEMBLY_INSPECT,
  UCS,
  UCS_BASE,
  UCS_RECORDS,
  UCS_RCACHE,
  GAUDI_IPC,
  HLTHUNK_MEMORY,
  HLTHUNK_OPEN,
  IB_BASE,
  IB_CONNECT,
  VERBS,
  TCP_CM,
  TCP_CONNECT,
  TCP_BASE,
  EMULATOR_PARTS,
  EMULATOR_SYSFS,
  SYS_EVENT,
  SYS_SOCKET,
  SYS_PROCESS,
  SYS_MEMORY,
  SYS_BASE,
  SYS_FILE,
  TOOLS_RUNS,
];
