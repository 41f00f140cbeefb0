/**
 * The status integers of UCX (`ucs_status_t`), which every data-path call returns.
 *
 * 0 is success, 1 is "in progress", negative values are failures, grouped by the largest entity they affect.
 * Source: UCX `src/ucs/type/status.h`, release 1.22.
 */

import { keysOf } from './keys.ts';

export const Status = {
  /** The operation succeeded. */
  OK: 0,
  /** The operation has not ended. */
  INPROGRESS: 1,
  /** The requested message has not arrived. */
  NO_MESSAGE: -1,
  /** No resources at the moment: back-pressure; try again after progress. */
  NO_RESOURCE: -2,
  /** Input or output failed. */
  IO_ERROR: -3,
  /** Memory is exhausted. */
  NO_MEMORY: -4,
  /** An argument is invalid. */
  INVALID_PARAM: -5,
  /** The destination cannot be reached. */
  UNREACHABLE: -6,
  /** An address is invalid. */
  INVALID_ADDR: -7,
  /** The function is not implemented. */
  NOT_IMPLEMENTED: -8,
  /** The message is longer than the receive buffer. */
  MESSAGE_TRUNCATED: -9,
  /** No progress was made. */
  NO_PROGRESS: -10,
  /** The supplied buffer is too small. */
  BUFFER_TOO_SMALL: -11,
  /** The element does not exist. */
  NO_ELEM: -12,
  /** Some connections failed. */
  SOME_CONNECTS_FAILED: -13,
  /** No such device. */
  NO_DEVICE: -14,
  /** The device or the resource is busy. */
  BUSY: -15,
  /** The request was cancelled. */
  CANCELED: -16,
  /** A shared-memory segment cannot be attached. */
  SHMEM_SEGMENT: -17,
  /** The element exists already. */
  ALREADY_EXISTS: -18,
  /** An index is out of range. */
  OUT_OF_RANGE: -19,
  /** The operation timed out. */
  TIMED_OUT: -20,
  /** A user-defined limit is exceeded. */
  EXCEEDS_LIMIT: -21,
  /** The operation is not supported. */
  UNSUPPORTED: -22,
  /** The peer or the system rejected the operation. */
  REJECTED: -23,
  /** The endpoint is not connected. */
  NOT_CONNECTED: -24,
  /** The peer reset the connection. */
  CONNECTION_RESET: -25,
  /** The peer did not reply in time. */
  ENDPOINT_TIMEOUT: -80,
} as const;

/** One of the values of {@link Status}. */
export type Status = (typeof Status)[keyof typeof Status];

/** The name of a status, for example `"NO_MEMORY"`. */
export type StatusName = keyof typeof Status;

const TEXT: Record<StatusName, string> = {
  OK: 'Success',
  INPROGRESS: 'Operation in progress',
  NO_MESSAGE: 'No pending message',
  NO_RESOURCE: 'No resources are available to initiate the operation',
  IO_ERROR: 'Input/output error',
  NO_MEMORY: 'Out of memory',
  INVALID_PARAM: 'Invalid parameter',
  UNREACHABLE: 'Destination is unreachable',
  INVALID_ADDR: 'Address not valid',
  NOT_IMPLEMENTED: 'Function not implemented',
  MESSAGE_TRUNCATED: 'Message truncated',
  NO_PROGRESS: 'No progress',
  BUFFER_TOO_SMALL: 'Provided buffer is too small',
  NO_ELEM: 'No such element',
  SOME_CONNECTS_FAILED: 'Failed to connect some of the requested endpoints',
  NO_DEVICE: 'No such device',
  BUSY: 'Device is busy',
  CANCELED: 'Request canceled',
  SHMEM_SEGMENT: 'Shared memory error',
  ALREADY_EXISTS: 'Element already exists',
  OUT_OF_RANGE: 'Index out of range',
  TIMED_OUT: 'Operation timed out',
  EXCEEDS_LIMIT: 'User-defined limit was reached',
  UNSUPPORTED: 'Unsupported operation',
  REJECTED: 'Operation rejected by remote peer',
  NOT_CONNECTED: 'Endpoint is not connected',
  CONNECTION_RESET: 'Connection reset by remote peer',
  ENDPOINT_TIMEOUT: 'Endpoint timeout',
};

const NAME_OF_VALUE = new Map<number, StatusName>(keysOf(Status).map((name) => [Status[name], name]));

/** Whether a value is a value of {@link Status}. */
export function isStatus(value: unknown): value is Status {
  return NAME_OF_VALUE.has(value as number);
}

/** Converts a number to a status: the failure of a function that returns a count or a failure, or a status that C or a peer has reported. */
export function statusOf(value: number): Status {
  return value as Status;
}

/** The name of a status, or `UNKNOWN(<value>)` for any other number, `UNKNOWN` for a value that is not a number. */
export function statusName(status: number): string {
  return NAME_OF_VALUE.get(status) ?? (typeof status === 'number' ? `UNKNOWN(${status})` : 'UNKNOWN');
}

/** The text UCX prints for a status value (`ucs_status_string`). */
export function statusString(status: number): string {
  const name = NAME_OF_VALUE.get(status);
  if (name !== undefined) return TEXT[name];
  return typeof status === 'number' ? `Unknown error ${status}` : 'Unknown error';
}

/** Whether an operation failed because the process lacks memory or descriptors, so that a later attempt may succeed. */
export function isLackOfResources(status: number): boolean {
  return status === Status.NO_MEMORY || status === Status.EXCEEDS_LIMIT;
}

/** True for a status that reports a failure; false for OK and INPROGRESS. */
export function isFailure(status: number): boolean {
  return status < 0;
}
