/** Faults in sys/event: descriptors on failure paths, masks, subscriptions, units of time-outs, wake-ups. */

import type { Area } from './fault.ts';

export const SYS_EVENT: Area = {
  name: 'sys-event',
  suites: ['test/integration/process/', 'test/contract/'],
  faults: [
    {
      file: 'src/sys/event/poll.ts',
      before: '      closeDescriptor(this.#fd);\n      throw error;',
      after: '      throw error;',
      breaks: 'a descriptor that cannot be polled leaves no duplicate',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: '  event.free();\n',
      after: '',
      breaks: 'the check of a descriptor frees its event',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: '  closeDescriptor(epoll);\n',
      after: '',
      breaks: 'the check of a descriptor closes its set',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: '    this.#handle = undefined;\n    closeDescriptor(this.#fd);',
      after: '    this.#handle = undefined;',
      breaks: 'a closed subscription closes its duplicate',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: 'this.#handle?.ref();',
      after: 'this.#handle?.unref();',
      breaks: 'a subscription can keep the process alive again',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: 'if (this.#once.poll() > 0) onWake();',
      after: 'onWake();',
      breaks: 'an alarm rings only for a report',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: 'ReadyFor.READ | ReadyFor.ONE_SHOT',
      after: 'ReadyFor.READ',
      breaks: 'an alarm rings once',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: '      this.#once.close();\n      throw error;',
      after: '      throw error;',
      breaks: 'an alarm that cannot be made leaves no set',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: '    this.#subscription.unref();\n',
      after: '',
      breaks: 'an alarm does not keep the process alive',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: '    this.#subscription.close();\n    this.#once.close();',
      after: '    this.#once.close();',
      breaks: 'a closed alarm ends its subscription',
    },
    {
      file: 'src/sys/event/poll.ts',
      before: '    this.#subscription.close();\n    this.#once.close();',
      after: '    this.#subscription.close();',
      breaks: 'a closed alarm closes its set',
    },
    {
      file: 'src/sys/event/event-set.ts',
      before: 'getUint32(index * EVENT_BYTES + 4, true)',
      after: 'getUint32(index * EVENT_BYTES + 8, true)',
      breaks: 'a token is that of its descriptor',
    },
    {
      file: 'src/sys/event/event-set.ts',
      before: 'return this.#wait(0);',
      after: 'return this.#wait(1);',
      breaks: 'a poll of a set does not wait',
    },
    {
      file: 'src/sys/event/event-set.ts',
      before: '    this.#events.free();\n    this.#change.free();\n  }',
      after: '    this.#change.free();\n  }',
      breaks: 'a closed set frees its events',
    },
    {
      file: 'src/sys/event/event-set.ts',
      before: '    this.#events.free();\n    this.#change.free();\n    throw',
      after: '    throw',
      breaks: 'a set that cannot be made frees its memory',
    },
    {
      file: 'src/sys/event/event-set.ts',
      before: 'CTL_MODIFY, fd, events, token',
      after: 'CTL_ADD, fd, events, token',
      breaks: 'the events of a descriptor are changed',
    },
    {
      file: 'src/sys/event/event-set.ts',
      before: 'view.setUint32(4, token, true);',
      after: 'view.setUint32(4, fd, true);',
      breaks: 'a descriptor has the given token',
    },
    {
      file: 'src/sys/event/event-set.ts',
      before: 'return Math.max(count, 0);',
      after: 'return count;',
      breaks: 'a poll that fails has no ready descriptors',
    },
    {
      file: 'src/sys/event/event-fd.ts',
      before: '    this.#words[0] = count;\n',
      after: '    this.#words[0] = 1;\n',
      breaks: 'a signal adds its count',
    },
    {
      file: 'src/sys/event/event-fd.ts',
      before: '    this.#words[1] = 0;\n',
      after: '',
      breaks: 'a signal has no high word of an earlier reading',
    },
    {
      file: 'src/sys/event/event-fd.ts',
      before: 'if (code === Errno.EAGAIN) return;',
      after: '',
      breaks: 'a signal to a full counter is not an error',
    },
    {
      file: 'src/sys/event/event-fd.ts',
      before: 'EFD_CLOEXEC | EFD_NONBLOCK',
      after: 'EFD_NONBLOCK',
      breaks: 'a counter is close-on-exec',
    },
    {
      file: 'src/sys/event/event-fd.ts',
      before: '    this.#subscriptions.add(subscription);\n',
      after: '',
      breaks: 'a subscription belongs to its counter',
    },
    {
      file: 'src/sys/event/futex.ts',
      before: 'const FUTEX_WAIT = 0;',
      after: 'const FUTEX_WAIT = 128;',
      breaks: 'a futex is shared between processes',
    },
    {
      file: 'src/sys/event/futex.ts',
      before: 'Math.min(timeoutNs, FUTEX_TIMEOUT_NS_MAX)',
      after: 'FUTEX_TIMEOUT_NS_MAX',
      breaks: 'a wait ends after its time-out',
    },
    {
      file: 'src/sys/event/futex.ts',
      before: 'timeout.words[2] =',
      after: 'timeout.words[0] =',
      breaks: 'a time-out is in nanoseconds',
    },
    {
      file: 'src/sys/event/futex.ts',
      before: 'FUTEX_WAKE, count, 0',
      after: 'FUTEX_WAKE, 1, 0',
      breaks: 'as many sleepers as asked for are woken',
    },
    {
      file: 'src/sys/event/event-loop.ts',
      before: '    polls.delete(this.#address);\n',
      after: '',
      breaks: 'no callback after a handle was closed',
    },
  ],
};
