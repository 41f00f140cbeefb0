/** Faults in the connections of ucp: the queues and the end of each, and how they are made. */

import type { Area } from './fault.ts';

export const UCP_CONNECTIONS: Area = {
  name: 'ucp-connections',
  suites: ['test/contract/ucp/', 'test/simulation/simulation', 'test/fuzz/', 'test/integration/peers/wireup'],
  faults: [
    {
      file: 'src/ucp/base/connection.ts',
      before: 'if (this.#keptFailure === Status.OK) this.#keptFailure = status;',
      after: 'this.#keptFailure = status;',
      breaks: 'the first failure is kept for the next flush',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    if (this.#posted.isEmpty) {\n      const status = sendMessage',
      after: '    {\n      const status = sendMessage',
      breaks: 'messages of the protocol keep their order',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: 'if (this.#postedCount > POSTED_MAX) {',
      after: 'if (this.#postedCount > 2 * POSTED_MAX) {',
      breaks: 'a bounded number of messages of the protocol wait',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '      this.isUnreported = true;\n      this.fail(Status.EXCEEDS_LIMIT);',
      after: '      this.fail(Status.EXCEEDS_LIMIT);',
      breaks: 'an end within a call is reported by progress',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    if (this.#remoteOperations > 0) return;\n',
      after: '',
      breaks: 'a flush waits for the last operation that only the peer can end',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: 'if (request.isRemote) this.#remoteOperations += 1;',
      after: '',
      breaks: 'operations that only the peer can end are counted',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    this.waiting.delete(request.requestId);\n    this.#name(request);',
      after: '    this.#name(request);',
      breaks: 'messages to the old number of a request are ignored',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    this.#flushes.splice(at, 1);\n    return 1;',
      after: '    return 1;',
      breaks: 'a cancelled flush does not wait for the peer any more',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: 'return this.#hellos > 0 ? started : started + this.#restart(this.#pending);',
      after: 'return started + this.#restart(this.#pending);',
      breaks: 'requests wait until the request to connect is sent',
      equivalent: 'requests look for the number of the peer themselves',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    if (this.#hasLeft || this.remoteId === NO_ENDPOINT) return;\n    this.#hasLeft = true;',
      after: '    if (this.#hasLeft || this.remoteId === NO_ENDPOINT) return;',
      breaks: 'the close message is sent once',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    this.#hasLeft = true;\n    if (this.failure === Status.OK) this.closedByPeer',
      after: '    if (this.failure === Status.OK) this.closedByPeer',
      breaks: 'a peer that has closed gets no close message',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    if (this.failure !== Status.OK) return;\n    this.failure = status;',
      after: '    this.failure = status;',
      breaks: 'the first reason of the end of a connection counts',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    request.isAbandoned = true;\n    this.expect(request);',
      after: '    request.isAbandoned = true;',
      breaks: 'a request whose memory is in use is waited for',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: 'if (request.isAbandoned) return;',
      after: '',
      breaks: 'a request is told once that its peer is gone',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: 'this.#pending.sift((request) => request.isFlush, take);',
      after: 'this.#pending.sift(() => false, take);',
      breaks: 'flushes end by themselves when a connection is given up',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: 'request instanceof PostedMessage, take)',
      after: 'false, take)',
      breaks: 'messages to a peer are sent when its requests are given up',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: 'for (const { endpoint } of [...this.lanes]) endpoint.cancel?.();',
      after: '',
      breaks: 'transports are asked to give up what is in flight',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '|| this.waiting.size > 0 || !this.isDrained) return;',
      after: '|| !this.isDrained) return;',
      breaks: 'lanes stay open while requests use them',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    this.rkeys.close();\n',
      after: '',
      breaks: 'keys of the peer are released with the connection',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: '    this.inbound.close();\n',
      after: '',
      breaks: 'the memory for messages of the peer is given back',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: 'if (message.queued) return true;',
      after: '',
      breaks: 'one message returns the credit of a connection',
    },
    {
      file: 'src/ucp/base/connection.ts',
      before: 'if (queue.head !== head) continue;\n      queue.shift();',
      after: 'queue.shift();',
      breaks: 'a start that ends the connection takes nothing else from the queue',
    },
    {
      file: 'src/ucp/base/own-messages.ts',
      before: 'this.#header = header.slice();',
      after: 'this.#header = header;',
      breaks: 'a message that waits keeps its header',
    },
    {
      file: 'src/ucp/base/own-messages.ts',
      before: 'return isLackOfResources(status) ? Status.NO_RESOURCE : status;',
      after: 'return status;',
      breaks: 'a message that lacks memory or descriptors is sent again',
    },
    {
      file: 'src/ucp/base/own-messages.ts',
      before: 'if (status === Status.OK) window.updateSent();',
      after: '',
      breaks: 'credit is returned once',
    },
    {
      file: 'src/ucp/base/queued.ts',
      before: 'if (this.#tail === at) this.#tail = before;',
      after: '',
      breaks: 'what comes behind a removed request is queued',
    },
    {
      file: 'src/ucp/base/queued.ts',
      before: 'if (this.#head === undefined) this.#tail = undefined;',
      after: '',
      breaks: 'an emptied queue takes requests again',
    },
    {
      file: 'src/ucp/base/queued.ts',
      before: 'if (queued.queued) queued.state = RequestState.STARTED;',
      after: '',
      breaks: 'a request that left its queue does not count as queued',
    },
  ],
};
