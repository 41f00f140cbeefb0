/** Faults in ucp: order and failures over several lanes, releases, limits against hostile peers. */

import type { Area } from './fault.ts';

export const UCP: Area = {
  name: 'ucp',
  suites: ['test/contract/ucp/', 'test/simulation/simulation', 'test/fuzz/', 'test/property/'],
  faults: [
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'else if (failure === Status.OK) failure = status;',
      after: 'else failure = status;',
      breaks: 'a check of lanes reports the first failure, although a later lane succeeds',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'else if (status < 0) request.failure = status;',
      after: '',
      breaks: 'a flush ends with the failure of a lane',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'request.failure = failure === Status.OK ? kept : failure;',
      after: 'request.failure = failure;',
      breaks: 'a failure that a fence has found is reported by the next flush',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: '    request.count += connection.notifications.await(request.onList);'.trim(),
      after: 'connection.notifications.await(request.onList);',
      breaks: 'a flush ends after the notifications before it',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'const status = endpoint.flush(undefined);\n    if (status === Status.INPROGRESS) ordered = false;',
      after: 'const status = Status.OK as Status;\n    if (status === Status.INPROGRESS) ordered = false;',
      breaks: 'a fence over several lanes flushes them',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'else if (status < 0) connection.keepFailure(status);',
      after: '',
      breaks: 'a fence keeps the failure of a lane that it flushes',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'if (connection.remoteOperations > 0) return false;',
      after: '',
      breaks: 'a fence waits for operations that only the peer can end',
    },
  ],
};
