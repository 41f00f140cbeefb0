/**
 * The handle of a libucp worker: its creation, address and event descriptor. Also the peers that pending operations wait for, for the warning about idle
 * peers: libucp does not report the peer of an operation.
 */

import type { AwaitedPeer } from '../../api/progress/idle-peers.ts';
import { addressOf, memcpy } from '../../sys/index.ts';
import { checkStatus, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  UCP_WORKER_ATTR,
  UCP_WORKER_ATTR_FIELD,
  UCP_WORKER_FLAG,
  UCP_WORKER_PARAM_FIELD,
  UCP_WORKER_PARAMS,
  UCS_THREAD_MODE,
} from '../c/abi.ts';
import { Fields, OutValue } from '../c/fields.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { requireDescriptors } from '../c/limits.ts';
import type { EngineContext } from '../engine/engine.ts';
import { RequestState } from '../request/request.ts';
import type { Requests } from '../request/requests.ts';

/** @throws UcxError ERR_SYSCALL_EMFILE; of ucp_worker_create */
export function createWorker(
  context: Pick<EngineContext, 'libucp' | 'handle' | 'configuration'> & { readonly shortage?: Error | undefined },
  clientId: bigint,
): number {
  requireDescriptors('ucp_worker_create');
  const { libucp, handle, configuration } = context;
  const { THREAD_MODE, CLIENT_ID, FLAGS } = UCP_WORKER_PARAM_FIELD;
  using params = new Fields(UCP_WORKER_PARAMS);
  using worker = new OutValue();
  params.setU64('field_mask', THREAD_MODE | CLIENT_ID | FLAGS);
  params.setU32('thread_mode', UCS_THREAD_MODE.SINGLE).setU64('client_id', clientId);
  params.setU64('flags', UCP_WORKER_FLAG.IGNORE_REQUEST_LEAK);
  const create = (): number => libucp.functions.ucp_worker_create(handle, params.address, worker.address);
  const status = configuration.run(create);
  if (status !== Status.OK) throw statusError(status, 'ucp_worker_create', context.shortage);
  return worker.value;
}

/** The worker address that libucp packs. */
export function workerAddress(functions: LibucpFunctions, worker: number): Uint8Array {
  using attributes = new Fields(UCP_WORKER_ATTR);
  attributes.setU64('field_mask', UCP_WORKER_ATTR_FIELD.ADDRESS);
  checkStatus(functions.ucp_worker_query(worker, attributes.address), 'ucp_worker_query');
  const bytes = new Uint8Array(attributes.number('address_length'));
  const address = attributes.number('address');
  memcpy(addressOf(bytes), address, bytes.byteLength);
  functions.ucp_worker_release_address(worker, address);
  return bytes;
}

/** The descriptor that becomes readable when an armed worker has an event. It belongs to libucp. */
export function workerEventFd(functions: LibucpFunctions, worker: number): number {
  using fd = new OutValue();
  checkStatus(functions.ucp_worker_get_efd(worker, fd.address), 'ucp_worker_get_efd');
  return fd.int;
}

/** One item for each pending request to a peer, in any order. */
export function* awaitedPeers({ all, coarse }: Requests): Generator<AwaitedPeer> {
  for (const request of all) {
    if (request === undefined || request.state === RequestState.FREE || request.isCompleted) continue;
    const id = request.endpoint?.peerId ?? '';
    if (id === '') continue;
    const ageMs = coarse.nowMs - request.startMs;
    yield { id, shownId: '', isManual: false, owesAnswer: false, place: undefined, ageMs };
  }
}
