/** Receives the data of an active message over libucp. Arrival of messages is in arrivals.ts. */

import { lengthOf } from '../../api/awaited/endpoint.ts';
import type { ReceivedMessage } from '../../api/awaited/messages.ts';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import { isList } from '../../api/memory/local.ts';
import { invalidParam, outsideOf } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint, EngineWorker } from '../engine/engine.ts';
import type { LocalBuffer } from '../mem/memory-handle.ts';
import type { Descriptor } from '../request/arrivals.ts';
import { cutList } from '../request/buffers.ts';
import { type RequestEndpoint, RequestKind } from '../request/request.ts';

/**
 * See AmMessageBase.receiveNbx. @returns also the status with which the sender's endpoint has failed: its data cannot be received any more
 * @throws UcxError ERR_INVALID_PARAM for memory that is too short; the data can then be received again
 */
export function receiveMessageData(
  worker: EngineWorker,
  message: ReceivedMessage,
  local: LocalBuffer,
  localOffset: number,
  byteLength: number,
  params: RequestParams | undefined,
  access: number,
): Status | Request {
  const { arrivals, buffers, devices, functions, handle, requests } = worker;
  const room = isList(local) ? lengthOf(local) : byteLength;
  if (!Number.isSafeInteger(room)) throw invalidParam('byteLength', 'must be an integer of 0 or more', room);
  if (room < message.byteLength) {
    throw outsideOf('local memory', 'byteLength', { offset: 0, byteLength: message.byteLength, size: room });
  }
  const { waiting } = message;
  if (waiting === undefined) return devices.copyOut(message, local, localOffset, params, access);
  const memory = isList(local) ? cutList(local, message.byteLength) : local;
  const sender = message.sender as (EngineEndpoint & RequestEndpoint) | undefined;
  if (sender !== undefined && sender.status !== Status.OK) {
    buffers.check(memory, localOffset, message.byteLength, access);
    // libucp would wait for the sender, which has gone, until the endpoint is closed here.
    message.isReceived = true;
    message.waiting = undefined;
    arrivals.release(waiting as Descriptor);
    return sender.status;
  }
  const request = buffers.begin(RequestKind.AM_RECV, 'am/libucp', memory, localOffset, message.byteLength, access);
  if (request === undefined) return Status.NO_RESOURCE;
  request.endpoint = sender;
  message.isReceived = true;
  message.waiting = undefined;
  const { address, count } = buffers;
  const descriptor = arrivals.take(waiting as Descriptor);
  const started = functions.ucp_am_recv_data_nbx(handle, descriptor, address, count, requests.param);
  if (started === 0) request.receivedBytes = message.byteLength;
  return requests.started(request, started, params);
}
