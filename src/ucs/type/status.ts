/**
 * The status integers of UCX (`ucs_status_t`): what every data-path call returns. Not exceptions; see error.ts for those.
 *
 * 0 is success, 1 is "in progress", negative values are failures, grouped by the largest entity they affect.
 * Source: UCX `src/ucs/type/status.h`, release 1.22.
 */

export const Status = {
  OK: 0,
  INPROGRESS: 1,
  NO_MESSAGE: -1,
  NO_RESOURCE: -2,
  IO_ERROR: -3,
  NO_MEMORY: -4,
  INVALID_PARAM: -5,
  UNREACHABLE: -6,
  INVALID_ADDR: -7,
  NOT_IMPLEMENTED: -8,
  MESSAGE_TRUNCATED: -9,
  NO_PROGRESS: -10,
  BUFFER_TOO_SMALL: -11,
  NO_ELEM: -12,
  SOME_CONNECTS_FAILED: -13,
  NO_DEVICE: -14,
  BUSY: -15,
  CANCELED: -16,
  SHMEM_SEGMENT: -17,
  ALREADY_EXISTS: -18,
  OUT_OF_RANGE: -19,
  TIMED_OUT: -20,
  EXCEEDS_LIMIT: -21,
  UNSUPPORTED: -22,
  REJECTED: -23,
  NOT_CONNECTED: -24,
  CONNECTION_RESET: -25,
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

const NAME_OF_VALUE = new Map<number, StatusName>(
  (Object.keys(Status) as StatusName[]).map((name) => [Status[name], name]),
);

/** The name of a status value, or `UNKNOWN(<value>)` for an integer that is not a status. */
export function statusName(status: number): string {
  return NAME_OF_VALUE.get(status) ?? `UNKNOWN(${status})`;
}

/** The text UCX prints for a status value (`ucs_status_string`). */
export function statusString(status: number): string {
  const name = NAME_OF_VALUE.get(status);
  return name === undefined ? `Unknown error ${status}` : TEXT[name];
}

/** Whether an operation failed because the process lacks memory or descriptors, which it may have later. */
export function isLackOfResources(status: number): boolean {
  return status === Status.NO_MEMORY || status === Status.EXCEEDS_LIMIT;
}

/** True for a status that reports a failure; OK and INPROGRESS are none. */
export function isFailure(status: number): boolean {
  return status < 0;
}
