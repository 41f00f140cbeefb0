/** The lists and notifications of one endpoint over libucp: their checks. How they run is in device/list-operation.ts. */

import type {
  ListCheckOptions,
  ListParams,
  NotifyParams,
  PreparedList,
  Request,
  RequestParams,
  TransferEntry,
} from '../../api/contract/request.ts';
import {
  checkList,
  checkListOptions,
  checkListParams,
  checkNotification,
  notificationOf,
  PlannedList,
} from '../../api/list/list.ts';
import { NotifyOrder } from '../../api/list/notify-order.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_FEATURE } from '../c/abi.ts';
import { requireFeature } from '../c/features.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { checkProgramId, NOTIFICATION_AM_ID } from '../request/arrivals.ts';
import type { EndpointWorker } from './endpoint-worker.ts';

/** The lists. */
export class EndpointLists {
  readonly #worker: EndpointWorker;
  readonly #endpoint: EngineEndpoint;
  readonly #order: NotifyOrder = new NotifyOrder();

  constructor(worker: EndpointWorker, endpoint: EngineEndpoint) {
    this.#worker = worker;
    this.#endpoint = endpoint;
  }

  /** See Endpoint.prepareList. */
  prepare(operation: 'put' | 'get', list: readonly TransferEntry[], options: ListCheckOptions): PlannedList {
    checkListOptions(operation, options);
    return this.#plan(operation, list, options.strict === true);
  }

  /** See Endpoint.putListNbx. */
  start(
    operation: 'put' | 'get',
    list: readonly TransferEntry[] | PreparedList,
    params: ListParams | undefined,
  ): Status | Request {
    if (params !== undefined) checkListParams(operation, params, list);
    if (params?.notifyId !== undefined) checkProgramId(params.notifyId);
    if (params?.notify !== undefined) requireFeature(this.#worker.context.features, UCP_FEATURE.AM);
    if (list instanceof PlannedList) {
      list.check(operation, this.#endpoint);
      return this.#move(list, params);
    }
    return this.#move(this.#plan(operation, list as readonly TransferEntry[], params?.strict === true), params);
  }

  /** See Endpoint.notifyNbx. */
  notify(bytes: Uint8Array, params: NotifyParams | undefined): Status | Request {
    checkNotification(bytes);
    return this.start('put', [], { ...params, notify: bytes });
  }

  #plan(operation: 'put' | 'get', list: readonly TransferEntry[], strict: boolean): PlannedList {
    const owners = { memory: this.#worker.context, keys: this.#endpoint };
    return new PlannedList(operation, this.#endpoint, checkList(owners, operation, list, strict));
  }

  #move(list: PlannedList, params: ListParams | undefined): Status | Request {
    const endpoint = this.#endpoint;
    const { devices } = this.#worker;
    if (endpoint.status !== Status.OK) return endpoint.status;
    const { blocks, flush = false, notifyId = NOTIFICATION_AM_ID } = params ?? {};
    const notification = notificationOf(params);
    if ((blocks ?? list.blocks).length === 0 && notification === undefined) return Status.OK;
    if (endpoint.isFenced) {
      const begin = (inner: RequestParams): Status | Request => this.#move(list, { ...params, ...inner });
      return devices.defer(endpoint, `${list.operation}/list`, begin, params);
    }
    const plan = {
      list,
      selected: blocks && Int32Array.from(blocks),
      notification,
      flushes: flush || notification !== undefined,
      order: this.#order,
      notify: (bytes: Uint8Array, inner: RequestParams) => endpoint.sendOwn(notifyId, bytes, undefined, inner),
    };
    return devices.list(endpoint, plan, params);
  }
}
