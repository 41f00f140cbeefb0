/**
 * Every errno of the emulated driver, by the rule of the driver that it follows, with the test that produces it. errno-index.test.ts checks that
 * the tests exist, driver/errno-record.ts that each has received its errno from that call. Errnos that the driver cannot return to one process with
 * one ioctl at a time are omitted: no room for more entries
 * than a queue has (512 chunks are fewer), a device that goes into reset between two steps of a submission, memory of another context.
 */

import type { ErrnoName } from '../../../src/sys/index.ts';
import { IOCTL_NAMES } from '../../../src/uapi/index.ts';

/** One rule. */
export interface ErrnoRule {
  /** System call, or ioctl with what it asks for (ioctl-call.ts); on the control node with `control` before it. */
  readonly call: string;
  /** The condition of the failure. */
  readonly rule: string;
  readonly errno: ErrnoName;
  /** Title of a test that receives the errno. */
  readonly test: string;
}

const rule = (call: string, when: string, errno: ErrnoName, test: string): ErrnoRule => ({
  call,
  rule: when,
  errno,
  test,
});

const RESET_TEST = 'reset the card: the submission ETIMEDOUT, the others EIO, the file dead until it is closed';
const BROKEN_TEST = 'break a card until it recovers';
const UNPLUG_TEST = 'unplug a card: ENODEV everywhere';
const CONTROL_TEST = 'opens the control node any number of times, for INFO only';
const NUMBERS_TEST = 'refuses numbers that the driver does not have';
const CS_TEST = 'checks its arguments like the driver, with the errno in the status';
const ENGINES_TEST = 'checks command, number and list';
const CB_CHECK_TEST = 'checks command buffers';
const INFO_TEST = 'checks its arguments';
const EVENT_TEST = 'has one event fd per file';
const MULTI_TEST = 'waits for the first of several on gaudi';
const MULTI_ERROR_TEST = 'ends with the error of the first in the list that has one, whichever others are complete';
const MULTI_TIMEOUT_TEST = 'ends with the error of the first in the list when a time-out resets the card';
const WAIT_END_TEST = 'end non-blocking waits with the result of the submission';
const INTERRUPT_TEST = 'checks interrupt ids and counters';
const PIN_TEST = 'refuses what cannot be pinned';
const SIGNAL_TEST = 'signals and waits between queues';
const RESERVE_TEST = 'reserves signals, and cancels the last reservation only';
const DEBUG_TEST = 'needs debug mode, which is switched once';
const DEBUG_OUTPUT_TEST = 'writes as many bytes of output as the caller asks for, after success only';
const CB_DESTROY_TEST = 'destroys once';
const MMAP_TEST = 'requires the whole buffer in pages, once at a time';
const EXHAUSTED_TEST = 'run out of memory, addresses and descriptors';
const DMABUF_TEST = 'checks alignment and bounds';
const LINK_TEST = 'that are absent prevent the import of memory of the other card: ENXIO';
const STAGED_TEST = 'completes a staged submission with its last member';
const INTERNAL_TEST = 'accepts internal queues only in all members of a staged submission but the last';
const BLOCK_TEST = 'maps whole blocks of registers if the ASIC has them';
const PARSER_TEST = 'parses command buffers for external queues';
const FREE_TEST = 'frees only known handles that are not mapped';

/** The rules. */
export const ERRNO_INDEX: readonly ErrnoRule[] = [
  rule('open', 'a compute context exists', 'EBUSY', 'has one compute context: EBUSY until it is closed'),
  rule('open', 'the card is in reset', 'EAGAIN', RESET_TEST),
  rule('open', 'the card has failed', 'EPERM', BROKEN_TEST),
  rule('open', 'no such card', 'ENOENT', 'refuses an unknown card with ENOENT'),
  rule('open', 'the card was removed', 'ENODEV', UNPLUG_TEST),
  rule('open control', 'the card has failed', 'EPERM', BROKEN_TEST),
  rule('open control', 'the card was removed', 'ENODEV', UNPLUG_TEST),
  ...(['CB', 'CS', 'WAIT_CS', 'MEMORY', 'DEBUG'] as const).map((name) =>
    rule(`control ${name}`, 'not INFO', 'ENOTTY', CONTROL_TEST),
  ),
  rule(
    'control unknown DRM number',
    'the driver does not have it',
    'ENOTTY',
    'refuses all requests but INFO on the control node',
  ),
  ...(['REGISTER_EVENTFD', 'UNREGISTER_EVENTFD', 'GET_EVENTS'] as const).map((op) =>
    rule(`control INFO ${op}`, 'events are those of a context', 'EOPNOTSUPP', CONTROL_TEST),
  ),
  rule('control mmap', 'nothing to map', 'ENODEV', CONTROL_TEST),
  ...[...IOCTL_NAMES, 'mmap'].flatMap((call) => [
    rule(call, 'the card was removed', 'ENODEV', UNPLUG_TEST),
    rule(call, 'the file is closed', 'EBADF', 'answers EBADF after close, and closes twice'),
  ]),
  rule('unknown DRM number', 'the driver does not have it', 'EINVAL', NUMBERS_TEST),
  rule('unknown ioctl', 'another type, or a number that the driver does not have', 'ENOTTY', NUMBERS_TEST),
  rule('INFO', 'padding, no size, no pointer, unknown op', 'EINVAL', INFO_TEST),
  rule('INFO', 'bad pointer', 'EFAULT', INFO_TEST),
  rule('INFO', 'not operational, for the ops that need it', 'EBUSY', RESET_TEST),
  rule('INFO SYNC_MANAGER', 'no such dcore', 'EINVAL', 'reports the first objects of each dcore'),
  rule('INFO ENGINE_STATUS', 'size out of bounds', 'EINVAL', 'returns the engine status as text in a bounded buffer'),
  rule(
    'INFO ENGINE_STATUS',
    'the text does not fit',
    'ENOMEM',
    'refuses a buffer in which the engine status does not fit',
  ),
  rule('INFO REGISTER_EVENTFD', 'registered already', 'EINVAL', EVENT_TEST),
  rule('INFO REGISTER_EVENTFD', 'bad descriptor', 'EBADF', EVENT_TEST),
  rule(
    'INFO REGISTER_EVENTFD',
    'a descriptor of something else',
    'EINVAL',
    'refuses a descriptor that is not an event fd',
  ),
  rule('INFO UNREGISTER_EVENTFD', 'not registered', 'EINVAL', EVENT_TEST),
  rule('INFO GET_EVENTS', 'less than 8 bytes', 'EINVAL', EVENT_TEST),
  rule(
    'INFO USER_MAPPINGS',
    'the buffer is too small',
    'ENOMEM',
    'keep the first page fault and the mappings at that time',
  ),
  rule('DEBUG', 'not operational', 'EBUSY', RESET_TEST),
  rule('DEBUG', 'not in debug mode, or the mode is so already', 'EFAULT', DEBUG_TEST),
  rule('DEBUG', 'unknown op', 'EINVAL', DEBUG_TEST),
  rule('DEBUG', 'unknown trace unit', 'EINVAL', 'refuses trace units that the generation does not have'),
  rule('DEBUG', 'parameters missing', 'EINVAL', 'refuses to enable a trace unit without its parameters'),
  rule('DEBUG', 'parameters or output not in memory', 'EFAULT', DEBUG_OUTPUT_TEST),
  rule('DEBUG', 'more output than the kernel allocates', 'ENOMEM', DEBUG_OUTPUT_TEST),
  rule('CB', 'not operational', 'EBUSY', RESET_TEST),
  rule('CB', 'unknown op', 'EINVAL', 'bounds the size and answers 0 on errors'),
  rule('CB CREATE', 'too large', 'EINVAL', 'bounds the size and answers 0 on errors'),
  rule(
    'CB CREATE',
    'MAP if the ASIC does not support it',
    'ENOMEM',
    'maps a buffer for the card if the ASIC supports it',
  ),
  rule('CB DESTROY', 'unknown or destroyed', 'EINVAL', CB_DESTROY_TEST),
  rule('CB INFO', 'unknown', 'EINVAL', CB_DESTROY_TEST),
  rule('CB INFO', 'a device address where there is none', 'EINVAL', 'reports the use count and the device address'),
  rule('mmap', 'another length, or mapped already', 'EINVAL', MMAP_TEST),
  rule('mmap', 'unknown handle or type', 'EINVAL', 'refuses unknown handles and types'),
  rule('MEMORY', 'not operational', 'EBUSY', RESET_TEST),
  rule('MEMORY', 'unknown op', 'EINVAL', 'refuses an unknown op'),
  rule('MEMORY ALLOC', 'no bytes', 'EINVAL', 'accounts for memory'),
  rule('MEMORY ALLOC', 'no memory left', 'ENOMEM', 'rounds up to pages and runs out with ENOMEM'),
  rule('MEMORY FREE', 'unknown, or still mapped', 'EINVAL', FREE_TEST),
  rule('MEMORY MAP host', 'no bytes, or a wrap-around', 'EINVAL', PIN_TEST),
  rule('MEMORY MAP host', 'memory that cannot be pinned', 'EFAULT', PIN_TEST),
  rule('MEMORY MAP host', 'a forced hint that is taken', 'ENOMEM', 'reuses a freed address, and accepts hints'),
  rule('MEMORY MAP host', 'no address space left', 'ENOMEM', EXHAUSTED_TEST),
  rule('MEMORY MAP device', 'unknown handle', 'EINVAL', FREE_TEST),
  rule(
    'MEMORY MAP device',
    'a forced hint that is taken',
    'ENOMEM',
    'maps one allocation twice, and accepts hints in whole pages',
  ),
  rule(
    'MEMORY UNMAP',
    'not the start of a mapping',
    'EINVAL',
    'keeps the offset in the page and unmaps only the exact address',
  ),
  rule('MEMORY UNMAP', 'exported', 'EINVAL', 'exports a part of device memory as a descriptor that cannot be mapped'),
  rule('MEMORY MAP_BLOCK', 'gaudi', 'EPERM', BLOCK_TEST),
  rule('MEMORY MAP_BLOCK', 'not a block of the user', 'EINVAL', BLOCK_TEST),
  rule('MEMORY EXPORT_DMABUF_FD', 'not aligned, or outside', 'EINVAL', DMABUF_TEST),
  rule('MEMORY EXPORT_DMABUF_FD', 'no descriptors left', 'EMFILE', EXHAUSTED_TEST),
  rule('MEMORY REG_DMABUF_FD', 'no link to the card that exported', 'ENXIO', LINK_TEST),
  rule('MEMORY TS_ALLOC', 'too many elements', 'EINVAL', 'maps buffers of timestamps'),
  rule('MEMORY TS_ALLOC', 'no elements', 'ENOMEM', 'maps buffers of timestamps'),
  rule('CS', 'padding, no chunks, too many, two types, bad queue', 'EINVAL', CS_TEST),
  rule('CS', 'bad chunk pointer', 'EFAULT', CS_TEST),
  rule('CS', 'not operational', 'EBUSY', RESET_TEST),
  rule('CS', 'STAGED where the ASIC has none', 'EPERM', 'has no staged submissions'),
  rule('CS', 'STAGED without its first member, or after its last', 'EINVAL', STAGED_TEST),
  rule('CS', 'collective wait', 'EINVAL', CS_TEST),
  rule('CS', 'engine commands on gaudi', 'EPERM', 'has no such commands'),
  rule('CS', 'engine commands: no command, no engines or too many', 'EINVAL', ENGINES_TEST),
  rule('CS', 'engine commands: bad pointer to the engines', 'EFAULT', ENGINES_TEST),
  rule('CS', 'an engine that cannot be stalled', 'EINVAL', 'stalls EDMAs, MMEs and TPCs, and nothing else'),
  rule('CS', 'a hardware queue without USER_ALLOC_CB', 'EINVAL', CB_CHECK_TEST),
  rule('CS', 'unknown kernel command buffer, or a size that is not its own', 'EINVAL', CB_CHECK_TEST),
  rule('CS', 'a user command buffer outside the ranges', 'EFAULT', CB_CHECK_TEST),
  rule('CS', 'only internal queues, where completion is tracked', 'EINVAL', INTERNAL_TEST),
  rule('CS', 'an unknown packet, or one over the end', 'EINVAL', PARSER_TEST),
  rule('CS', 'a privileged packet', 'EPERM', PARSER_TEST),
  rule('CS', 'the slot is busy', 'EAGAIN', 'answers EAGAIN when all submissions are in flight'),
  rule(
    'CS',
    'a queue has no room',
    'EAGAIN',
    'answers EAGAIN when a queue is full, counts it, and accepts more when it is not',
  ),
  rule('CS', 'an internal queue has no room', 'EAGAIN', 'answers EAGAIN when a queue has no room for the chunks'),
  rule('CS', 'the restore phase does not end', 'ENOEXEC', 'ends the restore phase of a submission with ENOEXEC'),
  rule('CS WAIT', 'not one signal, or one that was not submitted', 'EINVAL', SIGNAL_TEST),
  rule('CS RESERVE', 'too many, or a bad queue', 'EINVAL', RESERVE_TEST),
  ...(['CS SIGNAL', 'CS RESERVE'] as const).map((call) =>
    rule(
      call,
      'both sync objects are in use',
      'EINVAL',
      'refuses to switch sync objects while the other one has references, reservations included',
    ),
  ),
  rule(
    'CS SIGNAL',
    'the queue has no room',
    'EAGAIN',
    'answers EAGAIN to a signal of a full queue, and takes a wait there for complete',
  ),
  rule(
    'CS',
    'ENCAP_SIGNALS without a reservation',
    'EINVAL',
    'waits for signals that a staged submission raises itself',
  ),
  rule('CS UNRESERVE', 'not the last reservation', 'EINVAL', RESERVE_TEST),
  rule('WAIT_CS', 'not submitted yet', 'EINVAL', 'refuses unknown sequence numbers'),
  rule(
    'WAIT_CS',
    'not operational, or the reset is pending',
    'EBUSY',
    'give a user with an event fd 30 s to close the file',
  ),
  rule('WAIT_CS', 'the submission timed out', 'ETIMEDOUT', WAIT_END_TEST),
  rule('WAIT_CS', 'the submission was aborted', 'EIO', WAIT_END_TEST),
  rule('WAIT_CS MULTI_CS', 'gaudi2', 'EPERM', MULTI_TEST),
  rule('WAIT_CS MULTI_CS', 'too many, or not submitted', 'EINVAL', MULTI_TEST),
  rule('WAIT_CS MULTI_CS', 'bad pointer', 'EFAULT', MULTI_TEST),
  rule('WAIT_CS MULTI_CS', 'one timed out', 'ETIMEDOUT', MULTI_TIMEOUT_TEST),
  rule('WAIT_CS MULTI_CS', 'one was aborted', 'EIO', MULTI_ERROR_TEST),
  rule('WAIT_CS INTERRUPT', 'gaudi', 'EPERM', 'has no user interrupts'),
  rule('WAIT_CS INTERRUPT', 'bad id, handle or offset', 'EINVAL', INTERRUPT_TEST),
  rule('WAIT_CS INTERRUPT', 'bad pointer', 'EFAULT', INTERRUPT_TEST),
  rule(
    'WAIT_CS INTERRUPT',
    'the card fails meanwhile, counter in a command buffer',
    'EIO',
    'a wait for an interrupt with a counter in a command buffer ends with EIO',
  ),
];
